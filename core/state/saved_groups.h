// Parameter groups of a checkpoint against those of an engine: which are the same, by the tensors in them. What else a checkpoint
// knows of a group (hyperparameters, states of the whole group) belongs to those tensors.
//
//   const GroupMapping mapping = compare_groups(saved_groups(found), {{"default", {"w"}}, {"*.bias", {"b"}}});
//   mapping.saved[1];   // the number of the checkpoint's group that has the tensors of group 1, or nullopt
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
  std::vector<std::optional<size_t>> saved;  // [groups of the engine]
  bool is_whole = true;                      // every group that has tensors is one of the checkpoint's
  std::vector<std::string> notes;            // what differs; empty: nothing
};

/// Of every stage of a pipeline. Older checkpoints have no tensors there.
std::vector<GroupTensors> saved_groups(const checkpoint::Opened& found);

/// Tensors that only one side has are left out: whether a load takes them is decided elsewhere.
GroupMapping compare_groups(const std::vector<GroupTensors>& saved, const std::vector<GroupTensors>& here);

}  // namespace gannet
