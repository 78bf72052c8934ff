// Sums over whole tensors, groups or the model that an optimizer needs before its update
// (gannet_sum_spec).
//
//   Sums sums(optimizer);
//   optimizer.sums(args, round, parts); sums.add(tensor, round, parts);     // for every piece of this rank
//   complete_sums(all, round, context, store);                              // every rank has the totals
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "interfaces/optimizer.h"
#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

// The sums of one group: [tensors of the group][sums]. Once complete, sums of the group and the
// model are in every row. Sums of rows and columns are in separate arrays.
class Sums {
 public:
  explicit Sums(const Optimizer& optimizer, gannet_pass pass = GANNET_PASS_UPDATE);  // `optimizer` must outlive it
  size_t width() const { return wanted_.size(); }
  size_t tensors() const { return tensors_; }
  bool has_round(uint32_t round) const;  // whether `round` has sums in this pass
  uint32_t rounds() const;               // one more than the last round
  const std::vector<Optimizer::Sum>& wanted() const { return wanted_; }
  double* row(size_t tensor) { return values_.data() + tensor * width(); }
  const double* data() const { return values_.data(); }
  /// The identity values of the sums, [rows][width].
  std::vector<double> identity_values(size_t rows) const;
  /// Combines the round's sums over a part of a tensor, [width], with those so far.
  void add(size_t tensor, uint32_t round, const double* part);
  /// gannet_update_args::lines, to which the optimizer adds its sums over rows and columns; null if
  /// it requests none.
  double* const* lines() { return line_places_.empty() ? nullptr : line_places_.data(); }
  std::vector<double>& lines_of(size_t sum) { return lines_[sum]; }  // empty unless it is a sum over rows or columns

 private:
  bool is_of(const Optimizer::Sum& sum, uint32_t round) const { return sum.round == round && sum.pass == pass_; }
  const std::vector<Optimizer::Sum>& wanted_;
  gannet_pass pass_;
  size_t tensors_;
  std::vector<double> values_;
  std::vector<std::vector<double>> lines_;  // [width] [rows or columns of the group]
  std::vector<double*> line_places_;        // [width]; empty if no sum is over rows or columns
};

/// Combines a round's sums over this rank's pieces into sums over whole tensors, groups and the
/// model. `sums`: [groups]. Collective.
void complete_sums(std::vector<Sums>& sums, uint32_t round, RankContext& context, const ParameterStore& store);

}  // namespace gannet
