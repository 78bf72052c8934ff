// Imports the weights of a PyTorch state dict as one of our checkpoints: tensors "parameter/<name>", without an optimizer's
// states. gannet::load_weights reads it. Tensors are read while the checkpoint is written: in memory are the files' pickles.
#pragma once

#include <cstdint>
#include <string>

#include "exchange/renaming.h"

namespace gannet::exchange {

struct WeightsImport {
  std::string tag = "weights";
  Renames renames;
};

struct WeightsReceipt {
  std::string taken_from, path;  // the file and the entry in it; the checkpoint that was written
  size_t tensors = 0, not_tensors = 0;
  uint64_t bytes = 0;
  std::string to_string() const;
};

// `from`: what open_state_dict reads (a file, or a folder with pytorch_model.bin). Throws what it and checkpoint::Saver throw.
WeightsReceipt import_weights(const std::string& from, const std::string& out, const WeightsImport& options);

}  // namespace gannet::exchange
