// Under which name a checkpoint has what an engine wants of it. Its own saves use one name; weights that another program wrote
// may use another name of a tied tensor, or both, and have buffers among the parameters.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/state_entries.h"

namespace gannet {

// An import of weights: no engine saved it, it has tensors and no numbers.
bool holds_weights_alone(const checkpoint::Opened& found);

class SavedNames {
 public:
  SavedNames(const torch::nn::Module& module, const checkpoint::Opened& found);

  const checkpoint::TensorInfo* find(const StateEntry& kept) const;  // null: the checkpoint has none of it
  // Of weights: another name of a tied parameter, with the values that the checkpoint has under the other.
  bool is_copy_of_tied(const checkpoint::TensorInfo& saved) const;

  uint32_t source_rank = 0;  // whose buffers are wanted

 private:
  const checkpoint::Opened& found_;
  bool is_weights_;
  std::map<std::string, std::vector<std::string>> tied_;  // a parameter's other names
};

}  // namespace gannet
