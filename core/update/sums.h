// The sums of whole tensors, of a group or of the model that an optimizer wants before it updates (gannet_sum_spec).
//
//   Sums sums(optimizer);
//   optimizer.sums(args, round, parts); sums.add(tensor, round, parts);     // of every piece of this rank
//   complete_sums(all, round, context, store);                              // every rank has the totals
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "interfaces/optimizer.h"
#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

// Of one group: [tensors of the group][sums]. Those of the group and of the model stand in every row once they are complete,
// those of rows and columns in arrays of their own.
class Sums {
 public:
  explicit Sums(const Optimizer& optimizer, gannet_pass pass = GANNET_PASS_UPDATE);  // the optimizer outlives it
  size_t width() const { return wanted_.size(); }
  size_t tensors() const { return tensors_; }
  bool has_round(uint32_t round) const;  // with sums of this pass
  uint32_t rounds() const;               // one more than the last of them
  const std::vector<Optimizer::Sum>& wanted() const { return wanted_; }
  double* row(size_t tensor) { return values_.data() + tensor * width(); }
  const double* data() const { return values_.data(); }
  /// The values of sums over no elements, [rows][width].
  std::vector<double> identity_values(size_t rows) const;
  /// A part of a tensor, [width].
  void add(size_t tensor, uint32_t round, const double* part);
  /// gannet_update_args::lines, which the optimizer adds its parts to; null where it wants none.
  double* const* lines() { return line_places_.empty() ? nullptr : line_places_.data(); }
  std::vector<double>& lines_of(size_t sum) { return lines_[sum]; }  // empty: it is no sum of lines

 private:
  bool is_of(const Optimizer::Sum& sum, uint32_t round) const { return sum.round == round && sum.pass == pass_; }
  const std::vector<Optimizer::Sum>& wanted_;
  gannet_pass pass_;
  size_t tensors_;
  std::vector<double> values_;
  std::vector<std::vector<double>> lines_;  // [width] [rows or columns of the group]
  std::vector<double*> line_places_;        // [width], empty where no sum is of lines
};

/// A round's sums of this rank's pieces become those of whole tensors, of groups and of the model. `sums`: [groups]. All ranks
/// call it.
void complete_sums(std::vector<Sums>& sums, uint32_t round, RankContext& context, const ParameterStore& store);

}  // namespace gannet
