// Suggestions for unknown config keys.
//
//   advice_for("train_micro_batch_size", "");   // "; did you mean 'train_micro_batch_size_per_gpu'?"
//   advice_for("lr", "optimizer");              // "; it belongs in optimizer.params"
#pragma once

#include <string>
#include <string_view>

namespace gannet::config {

// Advice on a key found in `section` ("" is the top level); "" if no known key is close.
std::string advice_for(const std::string& key, const std::string& section);

// Returns "at the top level" or "in fp16".
std::string place_of(std::string_view section);

}  // namespace gannet::config
