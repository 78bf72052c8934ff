// Imports weights, of torch.save or safetensors, as one of our checkpoints: tensors "parameter/<name>", buffers among them,
// without an optimizer's states or counters; its document has "contents": "weights". An engine loads it as it loads with
// load_module_only, gannet::load_weights reads it too. Tensors are read while the checkpoint is written: in memory are the files'
// pickles.
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

// `from`: what open_weight_files reads. Throws what it and checkpoint::Saver throw.
WeightsReceipt import_weights(const std::string& from, const std::string& out, const WeightsImport& options);

}  // namespace gannet::convert
