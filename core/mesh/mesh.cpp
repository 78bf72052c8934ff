#include <gannet/error.h>
#include <gannet/mesh.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/format.h"
#include "base/text.h"

namespace gannet {
namespace {

std::vector<std::string> names_of(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : axes) names.push_back(axis.name);
  return names;
}

}  // namespace

MeshShape::MeshShape(std::vector<MeshAxis> axes, std::vector<uint32_t> ranks) : axes_(std::move(axes)) {
  uint64_t size = 1;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name.empty()) throw Error(ErrorCode::kArgument, formatted("axis {} of a mesh has no name", i));
    if (axes_[i].size == 0) throw Error(ErrorCode::kArgument, formatted("axis '{}' of a mesh has size 0", axes_[i].name));
    for (size_t j = 0; j < i; ++j)
      if (axes_[j].name == axes_[i].name)
        throw Error(ErrorCode::kArgument, formatted("a mesh names the axis '{}' twice", axes_[i].name));
    size *= axes_[i].size;
    if (size > std::numeric_limits<int32_t>::max())
      throw Error(ErrorCode::kArgument, formatted("a mesh of {} has more than 2147483647 ranks", text()));
  }
  world_size_ = static_cast<uint32_t>(size);
  if (ranks.empty()) return;
  if (ranks.size() != world_size_)
    throw Error(ErrorCode::kArgument, formatted("a mesh of {} was given {} ranks, not {}", text(), ranks.size(), world_size_));
  // The inverse of `ranks`: the place of each rank. world_size_ marks a rank that has not been seen
  // yet.
  std::vector<uint32_t> places(world_size_, world_size_);
  for (uint32_t place = 0; place < world_size_; ++place) {
    const uint32_t rank = ranks[place];
    if (rank >= world_size_ || places[rank] != world_size_)
      throw Error(ErrorCode::kArgument, formatted("a mesh of {} was given rank {}, which is {}", text(), rank,
                                                  rank >= world_size_ ? formatted("not below {}", world_size_) : "given twice"));
    places[rank] = place;
  }
  if (std::is_sorted(ranks.begin(), ranks.end())) return;  // identity: one form for equal meshes
  ranks_ = std::move(ranks);
  places_ = std::move(places);
}

size_t MeshShape::index(std::string_view axis) const {
  size_t i = 0;
  while (i < axes_.size() && axes_[i].name != axis) ++i;
  return i;
}

// The distance between neighbouring places along an axis. Places are in row-major order: the last
// axis varies fastest.
uint32_t MeshShape::stride(size_t axis) const {
  uint32_t stride = 1;
  for (size_t i = axis + 1; i < axes_.size(); ++i) stride *= axes_[i].size;
  return stride;
}

uint32_t MeshShape::place_of(uint32_t rank) const {
  if (rank >= world_size_)
    throw Error(ErrorCode::kArgument, formatted("rank {} is not in a mesh of {}, which has {} ranks", rank, text(), world_size_));
  return places_.empty() ? rank : places_[rank];
}

bool MeshShape::has(std::string_view axis) const { return index(axis) < axes_.size(); }

uint32_t MeshShape::size(std::string_view axis) const { return has(axis) ? axes_[index(axis)].size : 1; }

std::vector<uint32_t> MeshShape::coordinates(uint32_t rank) const {
  const uint32_t place = place_of(rank);
  std::vector<uint32_t> all;
  for (size_t i = 0; i < axes_.size(); ++i) all.push_back(place / stride(i) % axes_[i].size);
  return all;
}

uint32_t MeshShape::coordinate(uint32_t rank, std::string_view axis) const {
  const uint32_t place = place_of(rank);
  const size_t i = index(axis);
  return i < axes_.size() ? place / stride(i) % axes_[i].size : 0;
}

uint32_t MeshShape::rank(const std::vector<uint32_t>& coordinates) const {
  if (coordinates.size() != axes_.size())
    throw Error(ErrorCode::kArgument,
                formatted("{} coordinates were given in a mesh of {}, not {}", coordinates.size(), text(), axes_.size()));
  uint32_t place = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (coordinates[i] >= axes_[i].size)
      throw Error(ErrorCode::kArgument, formatted("axis '{}' of a mesh of {} has no coordinate {}: they are below {}",
                                                  axes_[i].name, text(), coordinates[i], axes_[i].size));
    place = place * axes_[i].size + coordinates[i];
  }
  return rank_at(place);
}

std::vector<uint32_t> MeshShape::group(std::string_view axis, uint32_t rank) const {
  const uint32_t place = place_of(rank);
  const size_t i = index(axis);
  if (i == axes_.size()) return {rank};
  // first: the rank's place with the coordinate along this axis set to 0.
  const uint32_t step = stride(i), first = place - place / step % axes_[i].size * step;
  std::vector<uint32_t> members;
  for (uint32_t n = 0; n < axes_[i].size; ++n) members.push_back(rank_at(first + n * step));
  return members;
}

std::vector<std::vector<uint32_t>> MeshShape::groups(std::string_view axis) const {
  std::vector<std::vector<uint32_t>> all;
  for (uint32_t place = 0; place < world_size_; ++place)
    if (coordinate(rank_at(place), axis) == 0) all.push_back(group(axis, rank_at(place)));
  return all;
}

MeshShape MeshShape::combine(const std::vector<std::string>& axes, const std::string& name) const {
  std::vector<bool> is_combined(axes_.size(), false);
  uint32_t size = 1;
  for (const std::string& axis : axes) {
    const size_t i = index(axis);
    if (i == axes_.size())
      throw Error(ErrorCode::kArgument, formatted("there is no axis '{}' in a mesh of {} to combine{}", axis, text(),
                                                  did_you_mean(axis, names_of(axes_))));
    if (is_combined[i]) throw Error(ErrorCode::kArgument, formatted("the axis '{}' was given twice to combine", axis));
    is_combined[i] = true;
    size *= axes_[i].size;
  }
  if (axes.empty()) throw Error(ErrorCode::kArgument, "no axis was given to combine");
  std::vector<MeshAxis> result;
  size_t at = axes_.size();  // the index of the combined axis in `result`
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (is_combined[i] && at < axes_.size()) continue;
    if (is_combined[i]) at = result.size();
    result.push_back(is_combined[i] ? MeshAxis{name, size} : axes_[i]);
  }
  const MeshShape plain(result);  // throws if the name is already used
  std::vector<uint32_t> ranks;
  for (uint32_t place = 0; place < world_size_; ++place) {
    const std::vector<uint32_t> to = plain.coordinates(place);
    std::vector<uint32_t> from(axes_.size());
    for (size_t i = 0, next = 0; i < axes_.size(); ++i) {
      if (next == at) ++next;
      if (!is_combined[i]) from[i] = to[next++];
    }
    // The combined coordinate counts through `axes` in the order given, the last one fastest.
    uint32_t rest = to[at];
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      const size_t i = index(*axis);
      from[i] = rest % axes_[i].size;
      rest /= axes_[i].size;
    }
    ranks.push_back(rank(from));
  }
  return MeshShape(std::move(result), std::move(ranks));
}

MeshShape MeshShape::refine(std::string_view axis, const std::vector<MeshAxis>& parts) const {
  const size_t i = index(axis);
  if (i == axes_.size())
    throw Error(ErrorCode::kArgument, formatted("there is no axis '{}' in a mesh of {} to refine{}", axis, text(),
                                                did_you_mean(axis, names_of(axes_))));
  const MeshShape inner(parts);
  if (inner.world_size() != axes_[i].size)
    throw Error(ErrorCode::kArgument, formatted("the axis '{}' of size {} cannot be refined to {}, which multiply to {}", axis,
                                                axes_[i].size, inner.text(), inner.world_size()));
  std::vector<MeshAxis> result = axes_;
  result.erase(result.begin() + static_cast<std::ptrdiff_t>(i));
  result.insert(result.begin() + static_cast<std::ptrdiff_t>(i), parts.begin(), parts.end());
  return MeshShape(std::move(result), ranks_);
}

std::string MeshShape::text() const {
  std::vector<std::string> parts;
  for (const MeshAxis& axis : axes_) parts.push_back(formatted("{} {}", axis.name, axis.size));
  return parts.empty() ? "1 rank" : join(parts, " x ");
}

std::string MeshShape::coordinates_text(uint32_t rank) const {
  const std::vector<uint32_t> all = coordinates(rank);
  std::vector<std::string> parts;
  for (size_t i = 0; i < all.size(); ++i) parts.push_back(formatted("{} {}", axes_[i].name, all[i]));
  return parts.empty() ? formatted("rank {}", rank) : join(parts, ", ");
}

}  // namespace gannet
