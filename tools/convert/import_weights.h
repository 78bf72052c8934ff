// Imports weights from torch.save or safetensors files as a Gannet checkpoint: tensors
// "parameter/<name>", buffers included, without optimizer states or counters; its document has
// "contents": "weights". An engine loads it as with load_module_only; gannet::load_weights reads it
// as well. Tensors are read while the checkpoint is written: only the files' pickles are held in
// memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/renaming.h"

namespace gannet::convert {

struct WeightsImport {
  std::string tag = "weights";
  Renames renames;
};

struct WeightsReceipt {
  std::string taken_from, path;  // the file and the entry in it; the checkpoint that was written
  size_t tensors = 0;
  uint64_t bytes = 0;
  std::vector<std::string> not_taken;  // each with its reason
  std::string to_string() const;
};

// `from`: a path that open_weight_files reads. Throws the errors of open_weight_files and
// checkpoint::Saver, and Error(kArgument) if the tag exists in `out` or a renaming is wrong.
WeightsReceipt import_weights(const std::string& from, const std::string& out, const WeightsImport& options);

}  // namespace gannet::convert
