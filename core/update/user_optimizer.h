// A torch::optim::Optimizer whose rule the engine does not know: it steps the fp32 masters at stage 0, and its state is its own.
// LibTorch's element-wise ones are in torch_optimizer.h.
//
//   UserOptimizer user(optimizer);                // Error(kUnsupported) for one that needs a closure
//   user.adopt(ranges, groups);                   // it holds the masters from here on
//   user.update(factor, ranges, groups, reducer, ranks);
//   user.give_back(ranges);                       // the module's parameters again, with the states that it has by now
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
  /// Also after parameters have joined.
  void adopt(std::deque<Range>& ranges, std::vector<Group>& groups);
  void give_back(const std::deque<Range>& ranges) noexcept;
  void update(double grad_scale, std::deque<Range>& ranges, std::vector<Group>& groups, const Reducer& reducer, uint32_t ranks);
  /// After a load: the groups have the rates that its options have.
  void take_rates(std::vector<Group>& groups);

 private:
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<double> lr_seen_;  // [groups] the rate that its options had after the last update
};

}  // namespace gannet
