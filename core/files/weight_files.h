// Opens weights in PyTorch or safetensors files, in one file or in the shards of a model. Metadata
// is read up front, and bytes on demand.
//
//   const WeightFiles weights = open_weight_files("gpt2");        // a file, an index, or a folder of either
//   for (const auto& tensor : weights.tensors) ... tensor.bytes->copy_out(0, tensor.nbytes, to) ...
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensor/stored_bytes.h"

namespace gannet::files {

struct WeightTensor {
  std::string name;
  std::vector<int64_t> shape;
  c10::ScalarType dtype = c10::ScalarType::Float;
  int64_t numel = 0;
  std::shared_ptr<StoredBytes> bytes;
};

struct WeightFiles {
  std::vector<WeightTensor> tensors;                         // in file order, each with its own bytes
  std::vector<std::pair<std::string, std::string>> aliases;  // another name of a tensor, and the name under which it is listed
  std::string path;                                          // as passed to open_weight_files()
  std::string taken_from;                                    // "gpt2/model.safetensors.index.json", "a.pt, its entry 'model'"
  size_t not_tensors = 0;                                    // number of entries of a state dict that are not tensors
};

// Whether the file is in the safetensors format, judged by its content or, if that is damaged, by
// its name.
bool is_safetensors(const std::string& path);
// Whether a folder holds weights in one of the layouts that open_weight_files() reads.
bool is_weights_folder(const std::string& folder);

// The format is decided by content, not by name. A folder may have model.safetensors or
// pytorch_model.bin, or the shards that its index lists, or a complete set of shards
// <name>-00001-of-0000N without an index. Throws Error(kArgument) for one shard of several and for
// a folder without weights, Error(kNotFound) for a missing shard, Error(kCorrupt) if index and
// shards differ, and the errors of reading the files and of refuse_known_folder().
WeightFiles open_weight_files(const std::string& path);

// A tensor of the file, with its stored and its target dtype.
struct Conversion {
  std::string name;
  c10::ScalarType from, to;
};
// Throws Error(kMismatch) naming the tensors that cannot be converted by value: integers and float8
// under a parameter's name are codes of a quantized model, with scales elsewhere, and a complex
// number would lose its imaginary part.
void refuse_other_kinds(const std::string& taken_from, const std::vector<Conversion>& conversions);

}  // namespace gannet::files
