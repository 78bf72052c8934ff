// generation_config.json, the options that Hugging Face keeps beside a model's weights.
#pragma once

#include <string>
#include <vector>

namespace gannet::generation {

// The keys of the folder's generation_config.json that change a text; empty without such a file.
std::vector<std::string> keys_with_effect(const std::string& folder);

}  // namespace gannet::generation
