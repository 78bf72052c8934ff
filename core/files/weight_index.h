// Reads the index that Hugging Face writes next to shards:
// {"weight_map": {"wte.weight": "pytorch_model-00001-of-00002.bin", ...}}.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace gannet::files {

// Maps each shard to the tensors it should have. Throws Error(kConfig) if the index is not JSON, and
// Error(kCorrupt) if it has no weight map or lists a shard outside of the folder.
std::map<std::string, std::vector<std::string>> files_of_index(const std::string& path);

}  // namespace gannet::files
