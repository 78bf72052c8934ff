// Under which name a checkpoint has what an engine wants of it. Its own saves use one name; weights that another program wrote
// may use another name of a tied tensor, or both, and have buffers among the parameters.
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

// An import of weights: no engine saved it, it has tensors and no numbers.
bool holds_weights_alone(const checkpoint::Opened& found);

class SavedNames {
 public:
  // `rank` of `mesh` is the one that loads.
  SavedNames(const torch::nn::Module& module, const checkpoint::Opened& found, const MeshShape& mesh, uint32_t rank);

  // Null: the checkpoint has none of it.
  const checkpoint::TensorInfo* find(const StateEntry& entry) const;
  // The name that it would have in this checkpoint.
  std::string expected(const StateEntry& entry) const { return stored_name(entry, source_); }
  // Of weights: another name of a tied parameter, with the values that the checkpoint has under the other.
  bool is_copy_of_tied(const checkpoint::TensorInfo& saved) const;
  // Whose buffers are wanted, by rank_name: "buffer/<source>/<name>".
  const std::string& source() const { return source_; }

 private:
  const checkpoint::Opened& found_;
  bool is_weights_;
  std::string source_;
  std::map<std::string, std::vector<std::string>> tied_;  // a parameter's other names
  // Where the checkpoint's mesh has other axes beside data: the first rank's buffer of each name. A pipeline with another number
  // of stages finds there what another stage had.
  std::map<std::string, const checkpoint::TensorInfo*> buffers_;
};

}  // namespace gannet
