// Text from a trained model: one token at a time, drawn from the 40 likeliest at temperature 0.8.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gpt2 {

/// What a model says of the token that follows: [1, T] int64 -> [1, vocabulary].
using NextLogits = std::function<at::Tensor(const at::Tensor& tokens)>;

/// `count` tokens that follow `prompt` (not empty); the model sees the last `positions` of them at a time. Calls the model
/// `count` times whatever the tokens are: at ZeRO stage 3 the ranks gather its parameters together, each for its own text.
std::vector<int64_t> generate(const NextLogits& next_logits, int64_t positions, std::vector<int64_t> prompt, int64_t count,
                              uint64_t seed);

/// Byte tokens as text a terminal can show; ids of larger vocabularies as numbers.
std::string to_text(const std::vector<int64_t>& tokens, int64_t vocabulary);

}  // namespace gpt2
