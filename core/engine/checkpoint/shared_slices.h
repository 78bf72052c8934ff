// Slices of a checkpoint that several ranks could give: each of them gives an equal share of the bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "engine/checkpoint/state_entries.h"

namespace gannet {

// Tensors that every holder has: what all ranks have, the neighbours share, so that each folder gets it once; what the ranks
// differ in along some axes, its holders share wherever they are.
class SharedSlices {
 public:
  SharedSlices(const MeshShape& mesh, uint32_t rank, const checkpoint::Neighbours& neighbours)
      : mesh_(mesh), rank_(rank), neighbours_(neighbours) {}

  void add(const StateEntry& entry, std::string name);
  /// This rank's share of all that was added, behind `slices`.
  void give(std::vector<checkpoint::Slice>& slices) const;

 private:
  struct Group {
    std::vector<uint32_t> holders;
    std::vector<checkpoint::Slice> tensors;
  };
  const MeshShape& mesh_;  // refined
  uint32_t rank_;
  const checkpoint::Neighbours& neighbours_;
  std::map<std::vector<std::string>, Group> groups_;  // by the axes that they differ along
};

}  // namespace gannet
