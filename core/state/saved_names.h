// Maps an engine's entries to names in a checkpoint. Gannet's own saves use one name per tensor.
// Weights written by another program may use another name of a tied tensor, or several, and may
// list buffers among the parameters.
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

// True for an import of weights: it was not saved by an engine and has tensors but no numbers.
bool holds_weights_alone(const checkpoint::Opened& found);

class SavedNames {
 public:
  // `rank` of `mesh` is the loading rank.
  SavedNames(const torch::nn::Module& module, const checkpoint::Opened& found, const MeshShape& mesh, uint32_t rank);

  // Null if the checkpoint does not have it.
  const checkpoint::TensorInfo* find(const StateEntry& entry) const;
  // The entry's name in this checkpoint.
  std::string expected(const StateEntry& entry) const { return stored_name(entry, source_); }
  // For weights: whether this is another name of a tied parameter, with the values that the
  // checkpoint has under the first.
  bool is_copy_of_tied(const checkpoint::TensorInfo& saved) const;
  // The rank_name of the rank whose buffers to load: "buffer/<source>/<name>".
  const std::string& source() const { return source_; }

 private:
  const checkpoint::Opened& found_;
  bool is_weights_;
  std::string source_;
  std::map<std::string, std::vector<std::string>> tied_;  // a parameter's other names
  // If the checkpoint's mesh has axes other than data: the first rank's buffer of each name. A
  // pipeline with a different number of stages finds another stage's buffers here.
  std::map<std::string, const checkpoint::TensorInfo*> buffers_;
};

}  // namespace gannet
