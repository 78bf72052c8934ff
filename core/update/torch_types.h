// LibTorch's optimizers whose rule works element by element: what they are set to and what they keep, by name.
//
//   if (const TorchType* type = torch_type_of(*optimizer))     // null: another class, a subclass, or complex parameters
//     for (const auto& number : type->numbers) print(number.name, number.in(options));
//
// By exact class: a subclass may have another rule, and a rule that looks at more than one element (LBFGS) would have another
// result for each cut of a tensor.
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

  // Read at every step: the program or a schedule may change it.
  struct Number {
    const char* name;
    uint32_t role;  // gannet_param_role
    double& (*in)(Options&);
  };
  // One value for each element.
  struct State {
    const char* name;  // in checkpoints
    at::Tensor& (*in)(ParamState&);
    bool (*is_kept)(Options&);  // the rule has it where it is set to these
  };

  const char* name;  // "torch::optim::AdamW"
  std::vector<Number> numbers;
  std::vector<State> states;
  int64_t& (*step)(ParamState&);      // updates of the parameter; null: the rule does not count them
  double (*first_value)(Options&);    // of every element of every state
  bool begins_with_states;            // its constructor makes them (Adagrad); else the first step of a parameter
  bool first_step_makes_states;       // from the gradient: that step must find none (SGD)
  std::string (*switches)(Options&);  // what is neither a number nor shows in the states: "nesterov"
  std::unique_ptr<ParamState> (*make_state)();
  std::unique_ptr<torch::optim::Optimizer> (*make_optimizer)();  // with one group, which has no parameters
};

/// Null where the optimizer's rule is not known to work element by element.
const TorchType* torch_type_of(const torch::optim::Optimizer& optimizer);

}  // namespace gannet
