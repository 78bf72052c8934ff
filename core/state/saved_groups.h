// Matches the parameter groups of a checkpoint with those of an engine by their tensors. Everything
// else that a checkpoint stores for a group (hyperparameters, states of the whole group) follows
// the tensors.
//
//   const GroupMapping mapping = compare_groups(saved_groups(found), {{"default", {"w"}}, {"*.bias", {"b"}}});
//   mapping.saved[1];   // index of the checkpoint's group with the tensors of group 1, or nullopt
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace gannet {

struct GroupTensors {
  std::string name;
  std::vector<std::string> tensors;
};

struct GroupMapping {
  std::vector<std::optional<size_t>> saved;  // [groups of the engine] index of the matching group in the checkpoint
  bool is_whole = true;                      // every group with tensors equals one of the checkpoint's
  std::vector<std::string> notes;            // differences; empty: none
};

/// The groups, with the tensors of all pipeline stages. Older checkpoints list no tensors.
std::vector<GroupTensors> saved_groups(const checkpoint::Opened& found);

/// Ignores tensors that only one side has, because other code decides whether a load accepts them.
GroupMapping compare_groups(const std::vector<GroupTensors>& saved, const std::vector<GroupTensors>& here);

}  // namespace gannet
