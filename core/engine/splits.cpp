// Splits of parameters: programs declare them, and an engine compares them across ranks.
#include "tensor/splits.h"

#include <ATen/core/Tensor.h>
#include <gannet/error.h>
#include <gannet/split.h>
#include <torch/nn/module.h>

#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "base/format.h"
#include "base/text.h"
#include "control/world.h"
#include "engine/agreement.h"
#include "engine/ownership.h"
#include "params/interception.h"

namespace gannet {

std::vector<int64_t> TensorSplit::local_shape() const { return gannet::local_shape(shape, {boxes, dim}); }

TensorSplit split_evenly(std::vector<int64_t> shape, int64_t dim, uint32_t rank, uint32_t ranks, int64_t fused) {
  const auto refuse = [&](const std::string& why, const char* next) {
    throw Error(
        ErrorCode::kArgument,
        formatted("split_evenly({}, dim {}, rank {} of {}, {} fused): {}", shape_text(shape), dim, rank, ranks, fused, why),
        next);
  };
  if (dim < 0 || dim >= static_cast<int64_t>(shape.size())) refuse("there is no such dimension", "count dimensions from 0");
  if (rank >= ranks) refuse("there is no such rank", "ranks are those along the axis, from 0");
  if (fused < 1 || shape[dim] % fused != 0)
    refuse(formatted("{} elements are not that many tensors of equal size", shape[dim]), "declare the boxes one by one");
  const int64_t each = shape[dim] / fused, count = ranks;
  if (each < count) refuse(formatted("{} elements leave a rank without any", each), "use fewer ranks along the axis");
  const int64_t larger = each % count;  // the number of ranks with one extra element
  const int64_t size = each / count + (rank < larger ? 1 : 0);
  const int64_t first = each / count * rank + std::min<int64_t>(rank, larger);
  TensorSplit split{std::move(shape), {}, dim};
  for (int64_t piece = 0; piece < fused; ++piece) {
    Box box{std::vector<int64_t>(split.shape.size(), 0), split.shape};
    box.offsets[dim] = piece * each + first;
    box.sizes[dim] = size;
    split.boxes.push_back(std::move(box));
  }
  return split;
}

namespace {

// Runs the checks shared by both declarations; `what` is the name of the call. Returns null if
// the rank has all of the tensor.
std::shared_ptr<DeclaredSplit> checked(const char* what, const at::Tensor& parameter, const TensorSplit& split) {
  const Split boxes{split.boxes, split.dim};
  std::string fault = split.boxes.empty() ? "has no boxes" : split_fault(split.shape, boxes);
  if (fault.empty() && !parameter.is_floating_point()) fault = formatted("has dtype {}", c10::toString(parameter.scalar_type()));
  if (fault.empty() && split.shape.empty()) fault = "is a single number";
  if (fault.empty() && local_shape(split.shape, boxes) != parameter.sizes())
    fault = formatted("has boxes that make up {}", shape_text(local_shape(split.shape, boxes)));
  if (!fault.empty())
    throw Error(ErrorCode::kArgument,
                formatted("{}: the parameter has shape {}, its tensor of shape {} {}", what, shape_text(parameter.sizes()),
                          shape_text(split.shape), fault),
                "give the boxes that this rank holds of the whole tensor: split_evenly makes those of equal parts");
  if (const std::string owner = Ownership::owner_of(parameter); !owner.empty())
    throw Error(ErrorCode::kOrder, formatted("{}: the parameter is trained by {} already", what, owner),
                "declare splits before initialize, in the layer's constructor");
  const Split proper = simplified(split.shape, boxes);
  return proper.is_whole() ? nullptr : std::make_shared<DeclaredSplit>(DeclaredSplit{split.shape, proper});
}

}  // namespace

void declare_split(const at::Tensor& parameter, const TensorSplit& split) {
  remember_split(parameter, checked("declare_split", parameter, split));
}

void declare_expert(const at::Tensor& parameter, const TensorSplit& split, double divisor) {
  if (!std::isfinite(divisor) || divisor < 0)
    throw Error(ErrorCode::kArgument, formatted("declare_expert: a gradient cannot be divided by {}", divisor),
                "give a number above 0, or 0 for the number of ranks along data");
  auto declared = checked("declare_expert", parameter, split);
  if (parameter.has_storage() && zero::is_watched(parameter.storage().unsafeGetStorageImpl()))
    throw Error(
        ErrorCode::kOrder,
        formatted("declare_expert: zero::Init has shared the parameter of shape {} out along data already, with the first "
                  "rank's values",
                  shape_text(parameter.sizes())),
        "declare an expert right after register_parameter, before the next parameter is made");
  if (declared) declared->is_along_expert = true;
  remember_split(parameter, std::move(declared), divisor);
}

namespace {

// Returns one line with the name, a tab and the boxes.
std::string line_of(const std::string& name, const DeclaredSplit& split) { return formatted("{}\t{}\n", name, to_text(split)); }

}  // namespace

std::string declared_splits(const torch::nn::Module& module) {
  std::string all;
  for (const auto& entry : module.named_parameters())
    if (const auto split = split_of(entry.value())) all += line_of(entry.key(), *split);
  return all;
}

namespace {

using DeclaredSplits = std::map<std::string, DeclaredSplit>;

DeclaredSplits declared_in(const std::string& text) {
  DeclaredSplits all;
  for (const std::string& line : split(text, '\n')) {
    const size_t tab = line.find('\t');
    all.emplace(line.substr(0, tab), split_from_text(line.substr(tab + 1)));
  }
  return all;
}

// Returns the first name in `a` that `b` lacks; "" if there is none.
std::string first_missing(const DeclaredSplits& a, const DeclaredSplits& b) {
  for (const auto& [name, unused] : a)
    if (!b.contains(name)) return name;
  return "";
}

std::string boxes_text(const DeclaredSplit& split) {
  std::vector<std::string> boxes;
  for (const Box& box : split.split.boxes) boxes.push_back(box_text(box));
  return formatted("{} of {}", join(boxes, " and "), shape_text(split.shape));
}

void require_same_names(const std::vector<DeclaredSplits>& of_ranks, const HostGroup& ranks, const char* axis) {
  for (size_t rank = 1; rank < of_ranks.size(); ++rank)
    for (const auto& [has, lacks] : {std::pair<size_t, size_t>{0, rank}, {rank, 0}})
      if (const std::string name = first_missing(of_ranks[has], of_ranks[lacks]); !name.empty())
        throw Error(ErrorCode::kMismatch,
                    formatted("along the axis {}, rank {} has declared a split of parameter '{}', and rank {} has not", axis,
                              ranks.ranks()[has], name, ranks.ranks()[lacks]),
                    "declare the splits of the same parameters on every rank of the axis");
}

// Checks that the ranks of an axis have the same boxes of the parameters that the axis does not
// split.
void require_same_boxes(HostGroup* ranks, const DeclaredSplits& declared, bool are_experts) {
  if (!ranks || ranks->size() == 1) return;
  std::string boxes;
  for (const auto& [name, split] : declared)
    if (split.is_along_expert == are_experts) boxes += formatted("the split of {}: {}\n", name, boxes_text(split));
  control::agree(*ranks, "the parameters' splits", boxes);
}

// Checks that the boxes of the ranks along an axis make up the tensors that it splits. If `ranks`
// is null, this rank's boxes alone must do so.
void require_cover(HostGroup* ranks, const DeclaredSplits& declared, bool are_experts) {
  const char* const axis = are_experts ? kExpertAxis : kTensorAxis;
  std::string mine;
  for (const auto& [name, split] : declared)
    if (split.is_along_expert == are_experts) mine += line_of(name, split);
  std::vector<DeclaredSplits> of_ranks;
  for (const std::string& text : ranks ? ranks->gather_texts(mine) : std::vector{mine}) of_ranks.push_back(declared_in(text));
  if (ranks) require_same_names(of_ranks, *ranks, axis);
  for (const auto& [name, first] : of_ranks[0]) {
    std::vector<Box> boxes;
    std::string fault;
    for (size_t rank = 0; rank < of_ranks.size() && fault.empty(); ++rank) {
      const DeclaredSplit& one = of_ranks[rank].at(name);
      if (one.shape != first.shape)
        fault = formatted("has shape {} on rank 0 and {} on rank {}", shape_text(first.shape), shape_text(one.shape), rank);
      boxes.insert(boxes.end(), one.split.boxes.begin(), one.split.boxes.end());
    }
    if (fault.empty()) fault = cover_fault(first.shape, std::move(boxes));
    if (!fault.empty())
      throw Error(ErrorCode::kConfig,
                  formatted("parameter '{}' is split among the {} {} of the mesh's axis {}, but it {}", name, of_ranks.size(),
                            of_ranks.size() == 1 ? "rank" : "ranks", axis, fault),
                  formatted("let the boxes of those ranks make up the tensor; gannet.mesh.{} is their number", axis));
  }
}

}  // namespace

// Every rank of a group sees the same strings, so either all of them throw or none does. A fault
// in one group of an axis, or on one rank if the mesh has no such axis, is reported on all ranks.
std::string agree_on_splits(const RankContext& context, const torch::nn::Module& module) {
  const std::string mine = declared_splits(module);
  const DeclaredSplits declared = declared_in(mine);
  std::optional<Error> fault;
  const auto attempt = [&](const std::function<void()>& check) {
    try {
      check();
    } catch (const Error& error) {
      if (!fault) fault = error;
    }
  };
  if (context.tensor_group) attempt([&] { require_same_boxes(context.host_group, declared, /*are_experts=*/false); });
  attempt([&] { require_cover(context.tensor_group, declared, /*are_experts=*/false); });
  attempt([&] { require_cover(context.expert_group, declared, /*are_experts=*/true); });
  if (context.expert_group)
    for (HostGroup* ranks : {context.expert_data_group, context.tensor_group})
      attempt([&] { require_same_boxes(ranks, declared, /*are_experts=*/true); });
  if (!context.tensor_group && !context.expert_group) {  // all ranks have declared the same names
    if (fault) throw *fault;
    return mine;
  }
  const auto faults = context.world_group->gather_texts(fault ? fault->message() : "");
  if (fault) throw *fault;
  for (size_t rank = 0; rank < faults.size(); ++rank)
    if (!faults[rank].empty())
      throw Error(ErrorCode::kMismatch, formatted("rank {}: {}", rank, faults[rank]),
                  "declare splits and experts alike on every rank");
  return mine;
}

}  // namespace gannet
