#include "state/state_entry.h"

#include <algorithm>

#include "base/format.h"

namespace gannet {
namespace {

bool differs_along(const StateEntry& entry, const std::string& axis) {
  return std::find(entry.differs_along.begin(), entry.differs_along.end(), axis) != entry.differs_along.end();
}

// Whether ranks along the axis have different elements of the same tensors.
bool is_of_data(const std::string& axis) { return axis == kDataAxis || axis == kExpertDataAxis || axis == kExpertAxis; }

}  // namespace

std::unordered_map<std::string, const StateEntry*> trained_entries(const std::vector<StateEntry>& entries) {
  std::unordered_map<std::string, const StateEntry*> trained;
  for (const StateEntry& entry : entries)
    if (entry.kind == StateEntry::Kind::kTrained) trained.emplace(entry.name, &entry);
  return trained;
}

std::string rank_name(const MeshShape& mesh, uint32_t rank) {
  std::string name = formatted("{}", mesh.coordinate(rank, kDataAxis));
  for (const MeshAxis& axis : mesh.axes())
    if (axis.name != kDataAxis && axis.size > 1) name += formatted(".{}{}", axis.name, mesh.coordinate(rank, axis.name));
  return name;
}

std::string parameter_of(const StateEntry& entry) {
  return entry.kind == StateEntry::Kind::kState ? entry.name.substr(entry.name.find('/') + 1) : entry.name;
}

std::string stored_name(const StateEntry& entry, const std::string& rank) {
  const std::string parameter = parameter_of(entry);
  const std::string name =
      entry.saved_as.empty() ? entry.name : entry.name.substr(0, entry.name.size() - parameter.size()) + entry.saved_as;
  switch (entry.kind) {
    case StateEntry::Kind::kBuffer:
      return formatted("buffer/{}/{}", rank, name);
    case StateEntry::Kind::kState:
      return formatted("state/{}", name);
    case StateEntry::Kind::kAverage:
      return formatted("average/{}", name);
    default:
      return formatted("parameter/{}", name);
  }
}

std::vector<uint32_t> holders_of(const StateEntry& entry, const MeshShape& mesh, uint32_t rank) {
  std::vector<uint32_t> holders;
  for (uint32_t other = 0; other < mesh.world_size(); ++other)
    if (std::all_of(entry.differs_along.begin(), entry.differs_along.end(),
                    [&](const std::string& axis) { return mesh.coordinate(other, axis) == mesh.coordinate(rank, axis); }))
      holders.push_back(other);
  return holders;
}

bool gives_part(const StateEntry& entry, const MeshShape& mesh, uint32_t rank) {
  return entry.is_given_here && std::all_of(mesh.axes().begin(), mesh.axes().end(), [&](const MeshAxis& axis) {
           return is_of_data(axis.name) || differs_along(entry, axis.name) || mesh.coordinate(rank, axis.name) == 0;
         });
}

bool same_coordinates(const MeshShape& a, const MeshShape& b) {
  if (a.world_size() != b.world_size()) return false;
  for (const MeshShape* mesh : {&a, &b})
    for (const MeshAxis& axis : mesh->axes()) {
      if (a.size(axis.name) != b.size(axis.name)) return false;
      for (uint32_t rank = 0; rank < a.world_size(); ++rank)
        if (a.coordinate(rank, axis.name) != b.coordinate(rank, axis.name)) return false;
    }
  return true;
}

uint32_t source_rank(const MeshShape& saved, const MeshShape& mesh, uint32_t rank) {
  std::vector<uint32_t> coordinates;
  for (const MeshAxis& axis : saved.axes())
    coordinates.push_back(axis.size == mesh.size(axis.name) ? mesh.coordinate(rank, axis.name) : 0);
  return saved.rank(coordinates);
}

}  // namespace gannet
