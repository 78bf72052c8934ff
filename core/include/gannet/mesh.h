/// Layout of the ranks of a run over the axes of parallelism, as a value.
///
///   const gannet::MeshShape mesh({{"pipe", 2}, {"data", 2}, {"tensor", 1}});   // slowest axis first, as DeepSpeed counts
///   mesh.text();                       // "pipe 2 x data 2 x tensor 1"
///   mesh.coordinate(3, "pipe");        // 1
///   mesh.group("pipe", 3);             // {1, 3}: the ranks that differ from rank 3 only in their pipe coordinate
///   mesh.groups("data");               // {{0, 1}, {2, 3}}
///
///   // replicate x shard: splits the data axis in two; data x tensor: combines two axes into one
///   mesh.refine("data", {{"replicate", 2}, {"shard", 1}}).group("replicate", 0);   // {0, 1}
///   mesh.combine({"data", "tensor"}, "batch").size("batch");                         // 2
///
/// A mesh holds numbers and names, no communicators. It can also be made from a ProcessTopology
/// (gannet/topology.h) or from an `mpu` (gannet/mpu.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gannet {

/// The axis names that Gannet uses; a MeshShape may have other names as well.
inline constexpr const char* kPipeAxis = "pipe";
inline constexpr const char* kDataAxis = "data";
inline constexpr const char* kTensorAxis = "tensor";
inline constexpr const char* kSequenceAxis = "sequence";
inline constexpr const char* kExpertAxis = "expert";           // splits data: neighbouring ranks hold different experts
inline constexpr const char* kExpertDataAxis = "expert_data";  // the rest of data: ranks with the same experts

struct MeshAxis {
  std::string name;
  uint32_t size = 1;
  bool operator==(const MeshAxis&) const = default;
};

class MeshShape {
 public:
  /// A mesh of one rank, without axes.
  MeshShape() = default;
  /// Ranks are numbered with the last axis fastest. If they are numbered differently, `ranks` holds
  /// the rank at each place of that numbering: each of 0 to world_size - 1 once. Throws
  /// Error(kArgument) on an axis without a name, named twice or of size 0, on more than 2^31 - 1
  /// ranks, and on `ranks` that are not a permutation.
  explicit MeshShape(std::vector<MeshAxis> axes, std::vector<uint32_t> ranks = {});

  const std::vector<MeshAxis>& axes() const { return axes_; }
  uint32_t world_size() const { return world_size_; }
  bool has(std::string_view axis) const;
  /// 1 if there is no such axis.
  uint32_t size(std::string_view axis) const;

  /// One coordinate per axis, in their order. Throws Error(kArgument) on a rank that is not in the
  /// mesh.
  std::vector<uint32_t> coordinates(uint32_t rank) const;
  /// 0 if there is no such axis.
  uint32_t coordinate(uint32_t rank, std::string_view axis) const;
  /// The rank at these coordinates, one per axis. Throws Error(kArgument) on a wrong number of
  /// coordinates or, naming the axis, on a coordinate out of range.
  uint32_t rank(const std::vector<uint32_t>& coordinates) const;
  /// The rank at a place of the numbering that has the last axis fastest; `place` is below
  /// world_size().
  uint32_t rank_at(uint32_t place) const { return ranks_.empty() ? place : ranks_[place]; }

  /// The ranks that differ from `rank` only in this coordinate, ordered by it; only `rank` itself
  /// if there is no such axis.
  std::vector<uint32_t> group(std::string_view axis, uint32_t rank) const;
  /// All groups of an axis, in the order of the other coordinates; every rank is in exactly one of
  /// them.
  std::vector<std::vector<uint32_t>> groups(std::string_view axis) const;

  /// Combines these axes into one, at the position of the slowest of them; in its coordinate the
  /// last of `axes` is fastest. Ranks keep their numbers. Throws Error(kArgument) if `axes` is
  /// empty, if an axis does not exist or is named twice, and on a name that another axis has.
  MeshShape combine(const std::vector<std::string>& axes, const std::string& name) const;
  /// Splits an axis into several, slowest first. Throws Error(kArgument) if it does not exist, if
  /// the sizes of the parts do not multiply to its size, and on a name that another axis has.
  MeshShape refine(std::string_view axis, const std::vector<MeshAxis>& parts) const;

  /// "pipe 2 x data 2 x tensor 1"; "1 rank" without axes.
  std::string text() const;
  /// "pipe 1, data 0, tensor 0"; "rank 0" without axes.
  std::string coordinates_text(uint32_t rank) const;

  bool operator==(const MeshShape&) const = default;

 private:
  size_t index(std::string_view axis) const;  // axes_.size() if there is no such axis
  uint32_t stride(size_t axis) const;         // distance in places between neighbours along the axis
  uint32_t place_of(uint32_t rank) const;

  std::vector<MeshAxis> axes_;
  uint32_t world_size_ = 1;
  std::vector<uint32_t> ranks_;   // [world_size] the rank at each place; empty: the identity
  std::vector<uint32_t> places_;  // [world_size] the inverse: the place of each rank
};

}  // namespace gannet
