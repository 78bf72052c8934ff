// The state of an Opened.
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
  std::vector<TensorInfo> tensors;  // from the manifest, in its order
  // The index of each name in `tensors` and in manifest.tensors.
  std::unordered_map<std::string, size_t> index;
};

// The files of a checkpoint, for read_blocks.
std::vector<BlockFile> block_files(const Opened::State& state);
// Names up to three tensors in a block: "tensors there: 'a', 'b', 'c' and 3 more".
std::string tensors_in(const Manifest& manifest, const BlockRequest& request);

}  // namespace gannet::checkpoint
