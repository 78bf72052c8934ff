// A torch::optim::Optimizer with a rule that the engine does not know. It steps the fp32 masters at
// stage 0 and owns its state. LibTorch's element-wise optimizers are in torch_optimizer.h.
//
//   UserOptimizer user(optimizer);                // throws Error(kUnsupported) for torch::optim::LBFGS, which needs a closure
//   user.adopt(ranges, groups);                   // the optimizer now holds the masters
//   user.update(factor, ranges, groups, reducer, ranks);
//   user.give_back(ranges);                       // it holds the module's parameters again, with its states
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "grads/reducer.h"
#include "params/range.h"

namespace torch::optim {
class Optimizer;
}

namespace gannet {

class UserOptimizer {
 public:
  explicit UserOptimizer(std::shared_ptr<torch::optim::Optimizer> optimizer);

  torch::optim::Optimizer& get() { return *optimizer_; }
  const torch::optim::Optimizer& get() const { return *optimizer_; }
  /// Called again after parameters have joined.
  void adopt(std::deque<Range>& ranges, std::vector<Group>& groups);
  void give_back(const std::deque<Range>& ranges) noexcept;
  void update(double grad_scale, std::deque<Range>& ranges, std::vector<Group>& groups, const Reducer& reducer, uint32_t ranks);
  /// Called after a load: copies the rates from its options to the groups.
  void take_rates(std::vector<Group>& groups);

 private:
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<double> lr_seen_;  // [groups] the rate in its options after the last update
};

}  // namespace gannet
