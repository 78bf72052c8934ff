// The slices of a checkpoint that several ranks could write. Each of these ranks writes an equal
// share of the bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "engine/checkpoint/state_entries.h"

namespace gannet {

// Divides the tensors that several ranks hold among these ranks. If all ranks have a tensor, the
// neighbours divide it among themselves, so that each folder gets it once. If it differs along some
// axes, its holders divide it, wherever they are.
class SharedSlices {
 public:
  SharedSlices(const MeshShape& mesh, uint32_t rank, const checkpoint::Neighbours& neighbours)
      : mesh_(mesh), rank_(rank), neighbours_(neighbours) {}

  void add(const StateEntry& entry, std::string name);
  /// Appends this rank's share of everything that was added.
  void give(std::vector<checkpoint::Slice>& slices) const;

 private:
  struct HolderGroup {
    std::vector<uint32_t> holders;
    std::vector<checkpoint::Slice> tensors;
  };
  const MeshShape& mesh_;  // the refined mesh
  uint32_t rank_;
  const checkpoint::Neighbours& neighbours_;
  std::map<std::vector<std::string>, HolderGroup> groups_;  // by the axes along which the tensors differ
};

}  // namespace gannet
