// The weights in PyTorch's files: a state dict by name, wherever in the file it lies (weight_files.h: of all formats and shards).
//
//   StateDict weights;
//   add_state_dict("pytorch_model.bin", weights);
//   for (const auto& [name, tensor] : weights.tensors) ... tensor.file->read(tensor.stored) ...
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "files/pt_file.h"

namespace gannet::files {

struct StateDict {
  struct Tensor {
    std::shared_ptr<const PtFile> file;
    StoredTensor stored;
  };
  std::map<std::string, Tensor> tensors;
  std::vector<std::string> order;  // of their names, as the files have them
  std::string taken_from;          // "run/model.pt, its entry 'module'": what the names are relative to
  size_t not_tensors = 0;          // entries beside them that are none
};

// .pt, .pth and .bin: by name, what torch.save writes.
bool is_pt_name(const std::string& path);

// Adds one file's to what `all` has: the root of the file where that is a dict of tensors; else its entry "module", "model",
// "state_dict" or "model_state_dict", the first that is one. Throws Error(kArgument) with the keys that were found where none is,
// and what PtFile throws.
void add_state_dict(const std::string& file, StateDict& all);

}  // namespace gannet::files
