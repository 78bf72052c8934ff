#include "update/sums.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace gannet {
namespace {

double nothing(gannet_reduce_op op) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return op == GANNET_MAX ? -kInfinity : op == GANNET_MIN ? kInfinity : 0;
}

// A NaN on either side is preserved.
double combined(gannet_reduce_op op, double a, double b) {
  if (op == GANNET_SUM) return a + b;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return op == GANNET_MAX ? std::max(a, b) : std::min(a, b);
}

// Combines the rows of some groups into one number and stores it in all their rows.
void merge(const std::vector<Sums*>& groups, size_t sum, gannet_reduce_op op) {
  double total = nothing(op);
  for (Sums* group : groups)
    for (size_t t = 0; t < group->tensors(); ++t) total = combined(op, total, group->row(t)[sum]);
  for (Sums* group : groups)
    for (size_t t = 0; t < group->tensors(); ++t) group->row(t)[sum] = total;
}

// Reduces sums over the ranks, for the tensors of which each rank has a different part
// (`is_apart`).
void reduce(HostGroup& ranks, std::vector<Sums>& sums, uint32_t round,
            const std::function<bool(size_t group, size_t tensor)>& is_apart) {
  for (const gannet_reduce_op op : {GANNET_SUM, GANNET_MAX, GANNET_MIN}) {
    std::vector<double*> places;
    for (size_t g = 0; g < sums.size(); ++g)
      for (size_t t = 0; t < sums[g].tensors(); ++t)
        for (size_t s = 0; s < sums[g].width(); ++s)
          if (sums[g].wanted()[s].round == round && sums[g].wanted()[s].op == op && is_apart(g, t))
            places.push_back(sums[g].row(t) + s);
    if (places.empty()) continue;
    std::vector<double> values;
    for (const double* place : places) values.push_back(*place);
    ranks.all_reduce(values.data(), values.size(), op);
    for (size_t i = 0; i < places.size(); ++i) *places[i] = values[i];
  }
}

}  // namespace

Sums::Sums(const Optimizer& optimizer, gannet_pass pass)
    : wanted_(optimizer.sums()), pass_(pass), tensors_(optimizer.tensor_count()) {
  values_ = identity_values(tensors_);
  lines_.resize(wanted_.size());
  for (size_t s = 0; s < wanted_.size(); ++s) {
    if (!wanted_[s].is_of_lines()) continue;
    lines_[s].assign(optimizer.line_count(wanted_[s]), nothing(wanted_[s].op));
    line_places_.resize(wanted_.size());
    line_places_[s] = lines_[s].data();
  }
}

bool Sums::has_round(uint32_t round) const {
  return std::any_of(wanted_.begin(), wanted_.end(), [&](const auto& sum) { return is_of(sum, round); });
}

uint32_t Sums::rounds() const {
  uint32_t rounds = 0;
  for (const auto& sum : wanted_)
    if (sum.pass == pass_) rounds = sum.round + 1;
  return rounds;
}

std::vector<double> Sums::identity_values(size_t rows) const {
  std::vector<double> values;
  for (size_t row = 0; row < rows; ++row)
    for (const auto& sum : wanted_) values.push_back(nothing(sum.op));
  return values;
}

void Sums::add(size_t tensor, uint32_t round, const double* part) {
  for (size_t s = 0; s < width(); ++s)
    if (is_of(wanted_[s], round)) row(tensor)[s] = combined(wanted_[s].op, row(tensor)[s], part[s]);
}

void complete_sums(std::vector<Sums>& sums, uint32_t round, RankContext& context, const ParameterStore& store) {
  if (store.is_sharded()) {
    reduce(*context.host_group, sums, round, [](size_t, size_t) { return true; });
    for (Sums& group : sums)
      for (size_t s = 0; s < group.width(); ++s)
        if (auto& lines = group.lines_of(s); !lines.empty() && group.wanted()[s].round == round)
          context.host_group->all_reduce(lines.data(), lines.size(), group.wanted()[s].op);
  }
  const auto reduce_boxes = [&](HostGroup& ranks, bool (Range::*has_boxes)() const) {
    std::vector<std::vector<bool>> is_apart;
    for (const Sums& group : sums) is_apart.emplace_back(group.tensors());
    for (const auto& range : store.ranges())
      for (const auto& parameter : range.parameters) is_apart[range.group][parameter.index] = (range.*has_boxes)();
    reduce(ranks, sums, round, [&](size_t g, size_t t) { return bool{is_apart[g][t]}; });
  };
  if (context.tensor_group) reduce_boxes(*context.tensor_group, &Range::is_split_along_tensor);
  if (context.expert_group && !store.is_sharded()) reduce_boxes(*context.expert_group, &Range::is_of_experts);
  std::vector<Sums*> all;
  for (Sums& group : sums) {
    all.push_back(&group);
    for (size_t s = 0; s < group.width(); ++s)
      if (group.wanted()[s].round == round && group.wanted()[s].scope == GANNET_SUM_OF_GROUP)
        merge({&group}, s, group.wanted()[s].op);
  }
  // All groups request the same sums.
  for (size_t s = 0; !sums.empty() && s < sums[0].width(); ++s)
    if (sums[0].wanted()[s].round == round && sums[0].wanted()[s].scope == GANNET_SUM_OF_MODEL)
      merge(all, s, sums[0].wanted()[s].op);
}

}  // namespace gannet
