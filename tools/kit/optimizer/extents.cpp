#include "kit/optimizer/extents.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "kit/numbers.h"

namespace gannet::kit {
namespace {

double nothing(gannet_reduce_op op) { return op == GANNET_MAX ? -INFINITY : op == GANNET_MIN ? INFINITY : 0; }

// A NaN on either side stays NaN.
double combined(gannet_reduce_op op, double a, double b) {
  if (op == GANNET_SUM) return a + b;
  if (std::isnan(a) || std::isnan(b)) return NAN;
  return op == GANNET_MAX ? std::max(a, b) : std::min(a, b);
}

}  // namespace

gannet_dtype type_of(const Optimizer::State& state, gannet_dtype master) {
  if (state.dtype != GANNET_DTYPE_NONE) return state.dtype;
  return state.extent == GANNET_STATE_PER_ELEMENT ? master : GANNET_FLOAT32;
}

CutPart values_in(const CutPart& part, const Optimizer::State& state) {
  return {part.tensor, part.begin / state.block, state.values_of(part.numel), part.offset / state.block};
}

Buffer new_state(const Optimizer::State& state, gannet_dtype dtype, size_t numel, bool tight) {
  Buffer buffer(numel * bytes_of(dtype), formatted("the state '{}'", state.name), tight);
  for (size_t i = 0; i < numel; ++i) put(buffer.data(), i, dtype, state.initial_value);
  return buffer;
}

Buffer new_square(const Optimizer::State& state, const Optimizer& optimizer, uint64_t tensor, gannet_dtype dtype, bool tight) {
  const Optimizer::Matrices of = optimizer.matrices_of(state, tensor);
  const uint64_t numel = of.numel(), rows = of.rows;
  if (numel == 0) return {};
  Buffer buffer(numel * bytes_of(dtype), formatted("the {} '{}'", state.is_square() ? "square" : "factor", state.name), tight);
  for (uint64_t i = 0; i < numel; ++i)
    put(buffer.data(), i, dtype, !state.is_square() || i / rows % rows == i % rows ? state.initial_value : 0);
  return buffer;
}

GroupSums::GroupSums(const Optimizer& optimizer, size_t tensors, gannet_pass pass)
    : wanted_(&optimizer.sums()), tensors_(tensors), pass_(pass), values_(identity_values(tensors)), lines_(wanted_->size()) {
  for (size_t s = 0; s < width(); ++s) {
    if (!(*wanted_)[s].is_of_lines()) continue;
    lines_[s].assign(optimizer.line_count((*wanted_)[s]), nothing((*wanted_)[s].op));
    line_places_.resize(width());
    line_places_[s] = lines_[s].data();
  }
}

bool GroupSums::has_round(uint32_t round) const {
  return std::any_of(wanted_->begin(), wanted_->end(), [&](const auto& sum) { return is_of(sum, round); });
}

uint32_t GroupSums::rounds() const {
  uint32_t rounds = 0;
  for (const auto& sum : *wanted_)
    if (sum.pass == pass_) rounds = sum.round + 1;
  return rounds;
}

std::vector<double> GroupSums::identity_values(size_t rows) const {
  std::vector<double> values;
  for (size_t row = 0; row < rows; ++row)
    for (const auto& sum : *wanted_) values.push_back(nothing(sum.op));
  return values;
}

void GroupSums::add(size_t tensor, uint32_t round, const double* part) {
  for (size_t s = 0; s < width(); ++s)
    if (is_of((*wanted_)[s], round)) row(tensor)[s] = combined((*wanted_)[s].op, row(tensor)[s], part[s]);
}

void complete(std::vector<GroupSums>& groups, uint32_t round, SimulatedRanks& ranks, uint32_t rank) {
  for (const gannet_reduce_op op : {GANNET_SUM, GANNET_MAX, GANNET_MIN}) {
    std::vector<double*> places;
    std::vector<double> values;
    for (GroupSums& group : groups)
      for (size_t t = 0; t < group.tensors_; ++t)
        for (size_t s = 0; s < group.width(); ++s)
          if ((*group.wanted_)[s].round == round && (*group.wanted_)[s].op == op) places.push_back(group.row(t) + s);
    if (places.empty()) continue;
    for (const double* place : places) values.push_back(*place);
    ranks.all_reduce(rank, values.data(), values.size(), op);
    for (size_t i = 0; i < places.size(); ++i) *places[i] = values[i];
  }
  for (GroupSums& group : groups)
    for (size_t s = 0; s < group.width(); ++s)
      if (auto& lines = group.lines_[s]; !lines.empty() && (*group.wanted_)[s].round == round)
        ranks.all_reduce(rank, lines.data(), lines.size(), (*group.wanted_)[s].op);
  const auto merge = [&](size_t first, size_t last, size_t sum, gannet_reduce_op op) {
    double total = nothing(op);
    for (size_t g = first; g < last; ++g)
      for (size_t t = 0; t < groups[g].tensors_; ++t) total = combined(op, total, groups[g].row(t)[sum]);
    for (size_t g = first; g < last; ++g)
      for (size_t t = 0; t < groups[g].tensors_; ++t) groups[g].row(t)[sum] = total;
  };
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t s = 0; s < groups[g].width(); ++s) {
      const Optimizer::Sum& sum = (*groups[g].wanted_)[s];
      if (sum.round != round) continue;
      if (sum.scope == GANNET_SUM_OF_GROUP) merge(g, g + 1, s, sum.op);
      if (sum.scope == GANNET_SUM_OF_MODEL && g == 0) merge(0, groups.size(), s, sum.op);
    }
}

}  // namespace gannet::kit
