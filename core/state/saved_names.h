// Maps an engine's entries to names in a checkpoint. Gannet's own saves use one name per tensor.
// Weights written by another program may store a tied tensor under a different one of its names, or
// under several, and may list buffers among the parameters.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "state/state_entry.h"

namespace torch::nn {
class Module;
}

namespace gannet {

// True for imported weights: such a checkpoint was not saved by an engine, and has tensors but no
// numbers.
bool holds_weights_alone(const checkpoint::Opened& found);

class SavedNames {
 public:
  // `rank` of `mesh` is the loading rank.
  SavedNames(const torch::nn::Module& module, const checkpoint::Opened& found, const MeshShape& mesh, uint32_t rank);

  // Returns null if the checkpoint does not have the entry.
  const checkpoint::TensorInfo* find(const StateEntry& entry) const;
  // The entry's name in this checkpoint.
  std::string expected(const StateEntry& entry) const { return stored_name(entry, source_); }
  // For imported weights: whether `saved` is a tied parameter under a second name, with the same
  // values as under its other name in the checkpoint.
  bool is_copy_of_tied(const checkpoint::TensorInfo& saved) const;
  // The rank_name of the rank to load buffers from: "buffer/<source>/<name>".
  const std::string& source() const { return source_; }

 private:
  const checkpoint::Opened& found_;
  bool is_weights_;
  std::string source_;
  std::map<std::string, std::vector<std::string>> tied_;  // the other names of each parameter
  // If the checkpoint's mesh has axes other than data: for each name, the buffer of the first rank
  // that has one. A pipeline with a different number of stages finds another stage's buffers here.
  std::map<std::string, const checkpoint::TensorInfo*> buffers_;
};

}  // namespace gannet
