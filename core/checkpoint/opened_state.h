// What an Opened holds.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/manifest.h"

namespace gannet::checkpoint {

struct Opened::State {
  std::string path, tag;
  Manifest manifest;
  std::vector<std::string> notes;
  std::vector<TensorInfo> tensors;  // of the manifest, in its order
  std::unordered_map<std::string, size_t> index;
};

}  // namespace gannet::checkpoint
