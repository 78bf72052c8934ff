// What lies outside of a simulated run's elements: the optimizer's states by their extent, and its sums. The one place of the
// kit that knows extents and scopes; core/update/group_states.cpp and sums.cpp are what it does again, without LibTorch.
#pragma once

#include <string>
#include <vector>

#include "interfaces/optimizer.h"
#include "kit/memory.h"
#include "kit/optimizer/cut.h"
#include "kit/ranks.h"

namespace gannet::kit {

// As the host makes it: the master's type where the plugin leaves it open, fp32 for states that are no element's.
gannet_dtype type_of(const Optimizer::State& state, gannet_dtype master);
// Of a part of a tensor, the values of a state that is cut.
Part values_in(const Part& part, const Optimizer::State& state);
Buffer new_state(const Optimizer::State& state, gannet_dtype dtype, size_t numel, bool tight);

// Those of a tensor, by its index in the group; an empty buffer where it has none.
Buffer new_square(const Optimizer::State& state, const Optimizer& optimizer, uint64_t tensor, gannet_dtype dtype, bool tight);

// Of one group on one rank: [tensors][sums].
class GroupSums {
 public:
  GroupSums(const Optimizer& optimizer, size_t tensors, gannet_pass pass = GANNET_PASS_UPDATE);
  size_t width() const { return wanted_->size(); }
  bool has_round(uint32_t round) const;  // in its pass
  uint32_t rounds() const;
  double* row(size_t tensor) { return values_.data() + tensor * width(); }
  const std::vector<double>& values() const { return values_; }
  std::vector<double> identity_values(size_t rows) const;
  void add(size_t tensor, uint32_t round, const double* part);
  double* const* lines() { return line_places_.empty() ? nullptr : line_places_.data(); }

 private:
  friend void complete(std::vector<GroupSums>&, uint32_t, Ranks&, uint32_t);
  bool is_of(const Optimizer::Sum& sum, uint32_t round) const { return sum.round == round && sum.pass == pass_; }
  const std::vector<Optimizer::Sum>* wanted_;
  size_t tensors_;
  gannet_pass pass_;
  std::vector<double> values_;
  std::vector<std::vector<double>> lines_;  // [sums] of rows or columns
  std::vector<double*> line_places_;
};

// A round's sums of this rank's pieces become those of whole tensors, of groups and of the model. Every rank calls it.
void complete(std::vector<GroupSums>& groups, uint32_t round, Ranks& ranks, uint32_t rank);

}  // namespace gannet::kit
