// Finds the weights in PyTorch's files: a state dict by name, under any of the usual entries
// (weight_files.h handles all formats and shards).
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
  std::vector<std::string> order;  // the tensors' names, in file order
  std::string taken_from;          // "run/model.pt, its entry 'module'": the base of the names
  size_t not_tensors = 0;          // number of entries of the dict that are not tensors
};

// Whether the extension is one of those usual for torch.save's files: .pt, .pth or .bin.
bool is_pt_name(const std::string& path);

// Adds one file's tensors to `all`: those of the first of its entries "module", "model", "state_dict" and
// "model_state_dict" that is a dict of tensors, else those of the root. Throws Error(kArgument) with the keys found if
// there are none, Error(kUnsupported) for an object without weights or a sparse tensor, and what PtFile throws.
void add_state_dict(const std::string& file, StateDict& all);

}  // namespace gannet::files
