// Gradients of parameters that came into the module within forward (a layer built at its first use, a thawed one). No hook of the
// reducer's is on them in that step's backward: autograd leaves their gradients in `.grad`, from where they are taken here, and
// given to the reducer when the parameters join (join.cpp).
//
//   newcomers.begin_backward(audit.unknown());   // the engine's backward runs ...
//   newcomers.end_backward(/*keeps_grads=*/false);
//   Newcomers::First first = newcomers.take(parameter);   // of this rank, the sum of the step's backwards
//
// As with a trained parameter `.grad` shows a mark until then (grads/gradient_mark.h): what the program clears is dropped.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "grads/gradient_mark.h"

namespace gannet {

class Newcomers {
 public:
  /// Parameters that require a gradient and that this engine will train once they have joined.
  void begin_backward(const std::vector<std::pair<std::string, at::Tensor>>& unknown);
  /// `keeps_grads`: `.grad` stays with the program, with its graph.
  void end_backward(bool keeps_grads);
  struct First {
    at::Tensor gradient;      // undefined: none
    bool is_cleared = false;  // to none, behind the last backward
  };
  First take(const at::Tensor& parameter);
  /// The step begins again, or has ended.
  void forget() noexcept;
  bool is_empty() const { return all_.empty(); }

 private:
  struct One {
    std::string name;
    at::Tensor parameter;
    at::Tensor aside = {};     // `.grad` of another backward, while ours runs
    at::Tensor gathered = {};  // in this step
    at::Tensor shown = {};     // what `.grad` is since the last backward
    GradientMark mark = {};
    bool is_running = false, is_cleared = false;
  };
  static void drop_cleared(One& one);

  std::vector<One> all_;
};

}  // namespace gannet
