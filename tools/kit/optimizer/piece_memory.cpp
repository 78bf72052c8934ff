#include "kit/optimizer/piece_memory.h"

#include "base/format.h"
#include "interfaces/seeds.h"
#include "interfaces/tensor_lines.h"
#include "kit/numbers.h"
#include "kit/optimizer/extents.h"

namespace gannet::kit {
namespace {

std::string names_in(const Problem& problem, const CutPiece& piece) {
  std::string text;
  for (const CutPart& part : piece.parts)
    if (text.size() < 100)
      text += formatted("{}'{}' [{}, {})", text.empty() ? "tensor " : ", ", problem.tensors[part.tensor].name, part.begin,
                        part.begin + part.numel);
  return text.empty() ? "a piece without tensors" : text;
}

gannet_segment segment_of(const Problem& problem, const CutPart& part) {
  const TensorSpec& tensor = problem.tensors[part.tensor];
  gannet_segment segment{};
  segment.struct_size = sizeof(segment);
  segment.dimensions = static_cast<uint32_t>(tensor.shape.size());
  TensorLines lines;
  for (size_t t = 0; t <= part.tensor; ++t) {
    if (problem.tensors[t].group != tensor.group) continue;
    lines = TensorLines::of(problem.tensors[t].shape, problem.tensors[t].numel, lines);
    segment.tensor_index += t < part.tensor;
  }
  lines.write_to(segment);
  segment.tensor_id = part.tensor + 100;
  segment.offset = part.offset;
  segment.numel = part.numel;
  segment.tensor_offset = part.begin;
  segment.tensor_numel = tensor.numel;
  segment.shape = tensor.shape.data();
  segment.name = tensor.name.c_str();
  segment.seed = tensor_seed(tensor.name);
  return segment;
}

}  // namespace

PieceMemory::PieceMemory(const Problem& problem, const CutPiece& piece, const Optimizer& optimizer, bool is_tight)
    : cut(&piece), names(names_in(problem, piece)) {
  const ProblemTypes& types = problem.types;
  const auto buffer = [&](gannet_dtype dtype, const char* name) { return Buffer(piece.numel * bytes_of(dtype), name, is_tight); };
  param = buffer(types.param, "the parameter");
  grad = buffer(types.grad, "the gradient");
  if (types.out != GANNET_DTYPE_NONE) out = buffer(types.out, "the copy `out`");
  if (optimizer.takes_second_gradients()) second = buffer(types.param, "the second gradient");
  for (const auto& state : optimizer.states())
    states.push_back(state.is_cut() ? new_state(state, type_of(state, types.param), state.values_of(piece.numel), is_tight)
                                    : Buffer());
  for (const CutPart& part : piece.parts) {
    lag = problem.tensors[part.tensor].joins;
    segments.push_back(segment_of(problem, part));
    for (const auto& state : optimizer.states())
      if (optimizer.has_matrix_states())
        squares.push_back(new_square(state, optimizer, segments.back().tensor_index, type_of(state, types.param), is_tight));
    for (uint64_t i = 0; i < part.numel; ++i)
      put(param.data(), part.offset + i, types.param, problem.initial(part.tensor, part.begin + i));
  }
}

void PieceMemory::copy_first_values(const Optimizer& optimizer, gannet_dtype master) {
  for (size_t s = 0; s < states.size(); ++s) {
    const Optimizer::State& state = optimizer.states()[s];
    if (!state.has(GANNET_STATE_FROM_PARAMETER)) continue;
    for (uint64_t i = 0; i < cut->numel; ++i) put(states[s].data(), i, type_of(state, master), get(param.data(), i, master));
  }
}

}  // namespace gannet::kit
