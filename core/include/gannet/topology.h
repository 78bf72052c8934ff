/// DeepSpeed's ProcessTopology: ranks on a grid of named axes, with the last axis fastest.
///
///   gannet::PipeModelDataParallelTopology topology(/*num_pp=*/2, /*num_mp=*/2, /*num_dp=*/2);   // axes pipe, data, model
///   topology.get_rank({{"pipe", 1}, {"data", 0}, {"model", 1}});     // 5
///   topology.get_axis_comm_lists("pipe");                            // {{0, 4}, {1, 5}, {2, 6}, {3, 7}}
///   topology.filter_match({{"pipe", 0}, {"data", 1}});               // {2, 3}
///   topology.get_rank_repr(5);                                       // "model_01"
///   gannet::MeshShape mesh = topology.mesh();                        // "pipe 2 x data 2 x tensor 2"
///
/// Results are those of DeepSpeed 0.19.6; where DeepSpeed raises an exception, an Error(kArgument)
/// is thrown.
#pragma once

#include <gannet/mesh.h>

#include <string>
#include <utility>
#include <vector>

namespace gannet {

class ProcessTopology {
 public:
  /// Pairs of an axis name and a coordinate on that axis.
  using Coord = std::vector<std::pair<std::string, uint32_t>>;

  ProcessTopology(const std::vector<std::string>& axes, const std::vector<uint32_t>& dims);

  /// Throws if an axis is missing (filter_match does not need all axes), unknown or named twice, or
  /// has no such coordinate.
  uint32_t get_rank(const Coord& coord) const;
  Coord get_coord(uint32_t rank) const;  ///< coordinates in the order of the axes
  std::vector<std::string> get_axis_names() const;
  uint32_t get_dim(std::string_view axis) const;  ///< 0 for an unknown axis
  uint32_t world_size() const { return shape_.world_size(); }

  /// The ranks with coordinate `index` on `axis`; none if the axis has no such coordinate.
  /// Throws on an unknown axis.
  std::vector<uint32_t> get_axis_list(std::string_view axis, uint32_t index) const;
  /// The groups that communicate along an axis; none for an unknown one.
  std::vector<std::vector<uint32_t>> get_axis_comm_lists(std::string_view axis) const;
  /// The ranks that have all of these coordinates. Throws on an unknown axis.
  std::vector<uint32_t> filter_match(const Coord& coord) const;
  /// "model_01": the coordinates of a rank without `omit_axes`, as in the file names of DeepSpeed's
  /// checkpoints.
  std::string get_rank_repr(uint32_t rank, const std::vector<std::string>& omit_axes = {"data", "pipe"},
                            const std::string& inner_sep = "_", const std::string& outer_sep = "-") const;

  /// The same ranks under Gannet's axis names: "model" becomes "tensor". Throws on an axis that
  /// Gannet does not know.
  MeshShape mesh() const;

 private:
  const MeshAxis& known(const std::string& axis) const;
  MeshShape shape_;
};

struct PipeDataParallelTopology : ProcessTopology {
  PipeDataParallelTopology(uint32_t num_pp, uint32_t num_dp) : ProcessTopology({"pipe", "data"}, {num_pp, num_dp}) {}
};

struct PipeModelDataParallelTopology : ProcessTopology {
  PipeModelDataParallelTopology(uint32_t num_pp, uint32_t num_mp, uint32_t num_dp)
      : ProcessTopology({"pipe", "data", "model"}, {num_pp, num_dp, num_mp}) {}
};

}  // namespace gannet
