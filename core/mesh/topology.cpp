#include <gannet/error.h>
#include <gannet/topology.h>

#include <algorithm>
#include <optional>

#include "base/format.h"
#include "base/text.h"

namespace gannet {
namespace {

std::vector<MeshAxis> axes_of(const std::vector<std::string>& axes, const std::vector<uint32_t>& dims) {
  if (axes.size() != dims.size())
    throw Error(ErrorCode::kArgument, formatted("a ProcessTopology was given {} axes and {} dims", axes.size(), dims.size()));
  std::vector<MeshAxis> all;
  for (size_t i = 0; i < axes.size(); ++i) all.push_back({axes[i], dims[i]});
  return all;
}

}  // namespace

ProcessTopology::ProcessTopology(const std::vector<std::string>& axes, const std::vector<uint32_t>& dims)
    : shape_(axes_of(axes, dims)) {}

const MeshAxis& ProcessTopology::known(const std::string& axis) const {
  for (const MeshAxis& one : shape_.axes())
    if (one.name == axis) return one;
  throw Error(ErrorCode::kArgument,
              formatted("the topology {} has no axis '{}'{}", shape_.text(), axis, did_you_mean(axis, get_axis_names())));
}

uint32_t ProcessTopology::get_rank(const Coord& coord) const {
  if (coord.size() != shape_.axes().size())
    throw Error(ErrorCode::kArgument,
                formatted("get_rank was given {} coordinates, the topology {} has {} axes", coord.size(), shape_.text(),
                          shape_.axes().size()),
                "give one of each axis; filter_match takes some of them");
  std::vector<std::optional<uint32_t>> values(coord.size());
  for (const auto& [axis, value] : coord) {
    auto& place = values[static_cast<size_t>(&known(axis) - shape_.axes().data())];
    if (place) throw Error(ErrorCode::kArgument, formatted("get_rank was given the axis '{}' twice", axis));
    place = value;
  }
  std::vector<uint32_t> coordinates;
  for (const auto& value : values) coordinates.push_back(*value);
  return shape_.rank(coordinates);
}

ProcessTopology::Coord ProcessTopology::get_coord(uint32_t rank) const {
  const std::vector<uint32_t> coordinates = shape_.coordinates(rank);
  Coord coord;
  for (size_t i = 0; i < coordinates.size(); ++i) coord.emplace_back(shape_.axes()[i].name, coordinates[i]);
  return coord;
}

std::vector<std::string> ProcessTopology::get_axis_names() const {
  std::vector<std::string> names;
  for (const MeshAxis& axis : shape_.axes()) names.push_back(axis.name);
  return names;
}

uint32_t ProcessTopology::get_dim(std::string_view axis) const { return shape_.has(axis) ? shape_.size(axis) : 0; }

std::vector<uint32_t> ProcessTopology::get_axis_list(std::string_view axis, uint32_t index) const {
  return filter_match({{std::string(axis), index}});
}

std::vector<std::vector<uint32_t>> ProcessTopology::get_axis_comm_lists(std::string_view axis) const {
  return shape_.has(axis) ? shape_.groups(axis) : std::vector<std::vector<uint32_t>>();
}

std::vector<uint32_t> ProcessTopology::filter_match(const Coord& coord) const {
  for (const auto& [axis, value] : coord) known(axis);
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < world_size(); ++rank)
    if (std::all_of(coord.begin(), coord.end(),
                    [&](const auto& one) { return shape_.coordinate(rank, one.first) == one.second; }))
      ranks.push_back(rank);
  return ranks;
}

std::string ProcessTopology::get_rank_repr(uint32_t rank, const std::vector<std::string>& omit_axes, const std::string& inner_sep,
                                           const std::string& outer_sep) const {
  std::vector<std::string> names;
  for (const auto& [axis, value] : get_coord(rank))
    if (std::find(omit_axes.begin(), omit_axes.end(), axis) == omit_axes.end())
      names.push_back(formatted("{}{}{}{}", axis, inner_sep, value < 10 ? "0" : "", value));
  return join(names, outer_sep);
}

MeshShape ProcessTopology::mesh() const {
  const std::vector<std::string> ours = {kPipeAxis, kDataAxis, kTensorAxis, kSequenceAxis, kExpertAxis};
  std::vector<MeshAxis> axes = shape_.axes();
  for (MeshAxis& axis : axes) {
    if (axis.name == "model") axis.name = kTensorAxis;
    if (std::find(ours.begin(), ours.end(), axis.name) == ours.end())
      throw Error(ErrorCode::kArgument,
                  formatted("no parallelism of Gannet goes by the axis '{}' of the topology {}{}", axis.name, shape_.text(),
                            did_you_mean(axis.name, ours)),
                  formatted("the axes are {} (or model)", join(ours, ", ")));
  }
  return MeshShape(std::move(axes));
}

}  // namespace gannet
