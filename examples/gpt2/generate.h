// Text from a trained model: one token at a time, drawn from the 40 likeliest at temperature 0.8.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model.h"

namespace gpt2 {

/// `count` tokens that go on from `prompt` (not empty). Leaves the model in evaluation mode.
std::vector<int64_t> generate(GptImpl& model, std::vector<int64_t> prompt, int64_t count, uint64_t seed);

/// Byte tokens as text a terminal can show; ids of larger vocabularies as numbers.
std::string to_text(const std::vector<int64_t>& tokens, int64_t vocabulary);

}  // namespace gpt2
