#include "mesh/request.h"

#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"

namespace gannet {

namespace {

// The axes in DeepSpeed's rank order; the first one varies slowest.
const std::vector<std::string>& order() {
  static const auto& axes = *new std::vector<std::string>{kPipeAxis, kDataAxis, kTensorAxis};
  return axes;
}
constexpr size_t kData = 1;

bool is_expert(const RequestedDegree& degree) { return degree.axis == kExpertAxis; }

size_t axis_of(const RequestedDegree& degree) {
  const auto found = std::find(order().begin(), order().end(), degree.axis == "model" ? kTensorAxis : degree.axis);
  if (found == order().end())
    throw Error(ErrorCode::kConfig,
                formatted("{}: a mesh has no axis '{}'{}", degree.where, degree.axis, did_you_mean(degree.axis, order())),
                formatted("the axes are {}, and {} refines {}", join(order(), ", "), kExpertAxis, kDataAxis));
  if (degree.size < 1)
    throw Error(ErrorCode::kConfig, formatted("{}: the axis '{}' cannot have {} ranks", degree.where, degree.axis, degree.size),
                "give 1 or more");
  return static_cast<size_t>(found - order().begin());
}

}  // namespace

MeshShape refined_by_experts(const MeshShape& mesh, int64_t experts, const std::string& where) {
  const uint32_t data = mesh.size(kDataAxis);
  if (experts < 1)
    throw Error(ErrorCode::kConfig, formatted("{}: the axis 'expert' cannot have {} ranks", where, experts), "give 1 or more");
  if (experts == 1) return mesh;
  if (data % experts != 0)
    throw Error(
        ErrorCode::kConfig,
        formatted("{}: {} ranks along the axis 'expert' do not divide the {} along 'data', in a mesh of {}", where, experts, data,
                  mesh.text()),
        "experts are shared out among ranks along data: give a divisor of their number, or start another number of ranks");
  // As in DeepSpeed, neighbouring ranks hold different experts.
  const auto degree = static_cast<uint32_t>(experts);
  return mesh.refine(kDataAxis, {{kExpertDataAxis, data / degree}, {kExpertAxis, degree}});
}

MeshShape unrefined(const MeshShape& shape) {
  if (!shape.has(kExpertAxis)) return shape;
  std::vector<std::string> parts;
  for (const MeshAxis& axis : shape.axes())
    if (axis.name == kExpertAxis || axis.name == kExpertDataAxis) parts.push_back(axis.name);
  return shape.combine(parts, kDataAxis);
}

MeshShape requested_mesh(const std::vector<RequestedDegree>& mesh, const std::vector<RequestedDegree>& elsewhere,
                         uint32_t world_size) {
  std::vector<const RequestedDegree*> asked(order().size(), nullptr);  // the first request for each axis
  const RequestedDegree* experts = nullptr;                            // the first request for the axis expert
  const auto first_of = [&](const RequestedDegree& degree) -> const RequestedDegree*& {
    return is_expert(degree) ? experts : asked[axis_of(degree)];
  };
  for (const RequestedDegree& degree : mesh) {
    const RequestedDegree*& first = first_of(degree);
    if (first)
      throw Error(ErrorCode::kConfig,
                  formatted("{}: the axis '{}' has a degree already, at {}", degree.where, degree.axis, first->where),
                  "name each axis once (model is another name of tensor)");
    first = &degree;
  }
  for (const RequestedDegree& degree : elsewhere) {
    const RequestedDegree*& first = first_of(degree);
    if (first && first->size != degree.size)
      throw Error(ErrorCode::kConfig,
                  formatted("{} asks for {} ranks along the axis '{}', {} for {}", first->where, first->size, degree.axis,
                            degree.where, degree.size),
                  "ask for the same number in both places, or in only one");
    if (!first) first = &degree;
  }
  std::vector<MeshAxis> axes;
  std::vector<std::string> factors, places;
  uint64_t product = 1;  // the product of the requested degrees
  for (size_t i = 0; i < order().size(); ++i) {
    axes.push_back({order()[i], 1});
    if (!asked[i]) continue;
    factors.push_back(formatted("{} {}", order()[i], asked[i]->size));
    places.push_back(asked[i]->where);
    // Compares by division, so that a product that overflows is not mistaken for a small one.
    if (asked[i]->size > world_size || world_size / static_cast<uint64_t>(asked[i]->size) < product)
      product = uint64_t{world_size} + 1;
    if (product > world_size) continue;
    axes.back().size = static_cast<uint32_t>(asked[i]->size);
    product *= axes.back().size;
  }
  const bool has_data = asked[kData] != nullptr;
  if (product > world_size || world_size % product != 0 || (has_data && product != world_size))
    throw Error(
        ErrorCode::kConfig,
        formatted("{}: a mesh of {} does not multiply to the {} {} of this run{}", join(places, ", "), join(factors, " x "),
                  world_size, world_size == 1 ? "rank" : "ranks", has_data ? "" : ", whatever the size of the axis data"),
        formatted("start another number of ranks, or change the mesh{}",
                  has_data ? "; without a degree for data, data is what is left" : ""));
  if (!has_data) axes[kData].size = static_cast<uint32_t>(world_size / product);
  MeshShape whole(std::move(axes));
  return experts ? refined_by_experts(whole, experts->size, experts->where) : whole;
}

}  // namespace gannet
