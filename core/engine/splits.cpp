// Splits of parameters: declared by programs, and compared when an engine is made.
#include "tensor/splits.h"

#include <ATen/core/Tensor.h>
#include <gannet/error.h>
#include <gannet/split.h>
#include <torch/nn/module.h>

#include "base/format.h"
#include "base/text.h"
#include "control/world.h"
#include "engine/agreement.h"
#include "engine/ownership.h"

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
  const int64_t larger = each % count;  // parts with an element more
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

void declare_split(const at::Tensor& parameter, const TensorSplit& split) {
  const Split boxes{split.boxes, split.dim};
  std::string fault = split.boxes.empty() ? "has no boxes" : split_fault(split.shape, boxes);
  if (fault.empty() && !parameter.is_floating_point()) fault = formatted("has dtype {}", c10::toString(parameter.scalar_type()));
  if (fault.empty() && split.shape.empty()) fault = "is a single number";
  if (fault.empty() && local_shape(split.shape, boxes) != parameter.sizes())
    fault = formatted("has boxes that make up {}", shape_text(local_shape(split.shape, boxes)));
  if (!fault.empty())
    throw Error(ErrorCode::kArgument,
                formatted("declare_split: the parameter has shape {}, its tensor of shape {} {}", shape_text(parameter.sizes()),
                          shape_text(split.shape), fault),
                "give the boxes that this rank holds of the whole tensor: split_evenly makes those of equal parts");
  if (const std::string owner = Ownership::owner_of(parameter); !owner.empty())
    throw Error(ErrorCode::kOrder, formatted("declare_split: the parameter is trained by {} already, as a whole one", owner),
                "declare splits before initialize, in the layer's constructor");
  const Split proper = simplified(split.shape, boxes);
  remember_split(parameter, proper.is_whole() ? nullptr : std::make_shared<DeclaredSplit>(DeclaredSplit{split.shape, proper}));
}

bool has_splits(const torch::nn::Module& module) {
  for (const auto& entry : module.named_parameters())
    if (split_of(entry.value())) return true;
  return false;
}

// Every rank sees the same texts, so that all of them throw, or none.
void agree_on_splits(const RankContext& context, const torch::nn::Module& module) {
  std::string mine;  // a line for each: its name, a tab, its boxes
  for (const auto& entry : module.named_parameters())
    if (const auto split = split_of(entry.value())) mine += formatted("{}\t{}\n", entry.key(), to_text(*split));
  if (context.tensor_group && context.host_group->size() > 1) control::agree(*context.host_group, "the parameters' splits", mine);
  const std::vector<std::string> of_ranks = context.tensor_group ? context.tensor_group->gather_texts(mine) : std::vector{mine};
  std::vector<std::vector<std::string>> lines;
  for (const std::string& text : of_ranks) lines.push_back(split(text, '\n'));
  const auto name_of = [](const std::string& line) { return line.substr(0, line.find('\t')); };
  const auto split_in = [](const std::string& line) { return split_from_text(line.substr(line.find('\t') + 1)); };
  for (size_t rank = 1; rank < lines.size(); ++rank)
    for (size_t i = 0; i < std::max(lines[rank].size(), lines[0].size()); ++i) {
      const std::string first = i < lines[0].size() ? name_of(lines[0][i]) : "";
      const std::string other = i < lines[rank].size() ? name_of(lines[rank][i]) : "";
      if (first != other)
        throw Error(
            ErrorCode::kMismatch,
            formatted("along the axis tensor, rank 0 has declared a split of '{}', and rank {} one of '{}'", first, rank, other),
            "declare the splits of the same parameters on every rank");
    }
  for (size_t i = 0; i < lines[0].size(); ++i) {
    const DeclaredSplit first = split_in(lines[0][i]);
    std::vector<Box> boxes;
    std::string fault;
    for (size_t rank = 0; rank < lines.size() && fault.empty(); ++rank) {
      const DeclaredSplit one = split_in(lines[rank][i]);
      if (one.shape != first.shape)
        fault = formatted("has shape {} on rank 0 and {} on rank {}", shape_text(first.shape), shape_text(one.shape), rank);
      boxes.insert(boxes.end(), one.split.boxes.begin(), one.split.boxes.end());
    }
    if (fault.empty()) fault = cover_fault(first.shape, std::move(boxes));
    if (!fault.empty())
      throw Error(ErrorCode::kConfig,
                  formatted("parameter '{}' is split among the {} {} of the mesh's axis tensor, but it {}", name_of(lines[0][i]),
                            lines.size(), lines.size() == 1 ? "rank" : "ranks", fault),
                  "let the boxes of those ranks make up the tensor; gannet.mesh.tensor is their number");
  }
}

}  // namespace gannet
