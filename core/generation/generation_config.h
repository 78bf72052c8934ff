// Reads generation_config.json, in which Hugging Face stores generation options next to a model's
// weights.
#pragma once

#include <string>
#include <vector>

namespace gannet::generation {

// The keys of the folder's generation_config.json that change generated text; empty without that
// file.
std::vector<std::string> keys_with_effect(const std::string& folder);

}  // namespace gannet::generation
