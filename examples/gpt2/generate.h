// Generates text from a trained model: each token is sampled from the 40 most likely, at
// temperature 0.8.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gpt2 {

/// Returns the logits of the next token: [1, T] int64 -> [1, vocabulary].
using NextLogits = std::function<at::Tensor(const at::Tensor& tokens)>;

/// Returns `count` tokens that continue `prompt`, which must not be empty. The model sees at most
/// the last `positions` tokens. Always calls the model `count` times, whatever the tokens are,
/// because at ZeRO stage 3 the ranks must gather its parameters together, although each generates
/// its own text.
std::vector<int64_t> generate(const NextLogits& next_logits, int64_t positions, std::vector<int64_t> prompt, int64_t count,
                              uint64_t seed);

/// Converts byte tokens to printable text, and ids of larger vocabularies to numbers.
std::string to_text(const std::vector<int64_t>& tokens, int64_t vocabulary);

}  // namespace gpt2
