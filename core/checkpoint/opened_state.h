// What an Opened holds.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/blocks.h"
#include "checkpoint/manifest.h"

namespace gannet::checkpoint {

struct Opened::State {
  std::string path, tag;
  Manifest manifest;
  std::vector<std::string> notes;
  std::vector<TensorInfo> tensors;  // of the manifest, in its order
  // By name: the position in `tensors` and in manifest.tensors.
  std::unordered_map<std::string, size_t> index;
};

// The files of a checkpoint, for read_blocks.
std::vector<BlockFile> block_files(const Opened::State& state);
// "tensors there: 'a', 'b' and 3 more": what lies in a block.
std::string tensors_in(const Manifest& manifest, const BlockRequest& request);

}  // namespace gannet::checkpoint
