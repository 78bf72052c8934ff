// The optimizer's states by extent, and its sums, in a simulated run.
// Only this part of the kit knows extents and scopes; it mirrors core/update/group_states.cpp and
// sums.cpp without LibTorch.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "interfaces/optimizer.h"
#include "kit/memory.h"
#include "kit/optimizer/cut.h"
#include "kit/ranks.h"

namespace gannet::kit {

// The type of a state: the plugin's choice, or else the master's type, or fp32 for a state that is not
// per element.
gannet_dtype type_of(const Optimizer::State& state, gannet_dtype master);
// The range of a cut state's values for a part of a tensor.
CutPart values_in(const CutPart& part, const Optimizer::State& state);
Buffer new_state(const Optimizer::State& state, gannet_dtype dtype, size_t numel, bool tight);

// The square matrices of a state for one tensor, given by its index in the group; an empty buffer if
// the tensor has none.
Buffer new_square(const Optimizer::State& state, const Optimizer& optimizer, uint64_t tensor, gannet_dtype dtype, bool tight);

// The sums of one group on one rank: [tensors][sums].
class GroupSums {
 public:
  GroupSums(const Optimizer& optimizer, size_t tensors, gannet_pass pass = GANNET_PASS_UPDATE);
  size_t width() const { return wanted_->size(); }
  bool has_round(uint32_t round) const;  // whether its pass has sums in this round
  uint32_t rounds() const;
  double* row(size_t tensor) { return values_.data() + tensor * width(); }
  const std::vector<double>& values() const { return values_; }
  std::vector<double> identity_values(size_t rows) const;
  void add(size_t tensor, uint32_t round, const double* part);
  // The sums over rows and columns, for restore_lines() before a call is repeated.
  std::vector<std::vector<double>> kept_lines() const { return lines_; }
  void restore_lines(const std::vector<std::vector<double>>& kept) {
    for (size_t s = 0; s < kept.size(); ++s) std::copy(kept[s].begin(), kept[s].end(), lines_[s].begin());
  }
  double* const* lines() { return line_places_.empty() ? nullptr : line_places_.data(); }

 private:
  friend void complete(std::vector<GroupSums>&, uint32_t, SimulatedRanks&, uint32_t);
  bool is_of(const Optimizer::Sum& sum, uint32_t round) const { return sum.round == round && sum.pass == pass_; }
  const std::vector<Optimizer::Sum>* wanted_;
  size_t tensors_;
  gannet_pass pass_;
  std::vector<double> values_;
  std::vector<std::vector<double>> lines_;  // [sums][rows or columns]
  std::vector<double*> line_places_;
};

// Completes a round: reduces this rank's sums to those of whole tensors, groups and the model.
// Collective: every rank calls it.
void complete(std::vector<GroupSums>& groups, uint32_t round, SimulatedRanks& ranks, uint32_t rank);

}  // namespace gannet::kit
