// LibTorch's optimizers with element-wise rules: their settings and states, by name.
//
//   if (const TorchType* type = torch_type_of(*optimizer))     // null: another class, a subclass, or complex parameters
//     for (const auto& number : type->numbers) print(number.name, number.in(options));
//
// Matches the exact class: a subclass may have a different rule. A rule that reads more than one
// element (LBFGS) would give a different result for each cut of a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
class OptimizerOptions;
class OptimizerParamState;
}  // namespace torch::optim

namespace gannet {

struct TorchType {
  using Options = torch::optim::OptimizerOptions;
  using ParamState = torch::optim::OptimizerParamState;

  // A setting that is read at every step, because the program or a schedule may change it.
  struct Number {
    const char* name;
    uint32_t role;  // gannet_param_role
    double& (*in)(Options&);
  };
  // A state with one value per element.
  struct State {
    const char* name;  // its name in checkpoints
    at::Tensor& (*in)(ParamState&);
    bool (*is_kept)(Options&);  // whether the rule keeps it with these settings
  };

  const char* name;  // "torch::optim::AdamW"
  std::vector<Number> numbers;
  std::vector<State> states;
  int64_t& (*step)(ParamState&);      // number of updates of the parameter; null: the rule does not count them
  double (*first_value)(Options&);    // the first value of every element of every state
  bool begins_with_states;            // its constructor makes them (Adagrad); otherwise a parameter's first step does
  bool first_step_makes_states;       // the first step() makes them from the gradient, so it must find none (SGD)
  std::string (*switches)(Options&);  // settings that are neither numbers nor visible in the states: "nesterov"
  std::unique_ptr<ParamState> (*make_state)();
  std::unique_ptr<torch::optim::Optimizer> (*make_optimizer)();  // with one group that has no parameters
};

/// Null if the optimizer's rule is not known to be element-wise.
const TorchType* torch_type_of(const torch::optim::Optimizer& optimizer);

}  // namespace gannet
