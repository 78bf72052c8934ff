// The gradients of parameters that entered the module within forward (in a layer built at its first
// use, or by unfreezing). The reducer has no hook on these parameters in that step's backward,
// so autograd leaves their gradients in `.grad`. They are taken from there, and passed to the
// reducer when the parameters join (join.cpp).
//
//   newcomers.begin_backward(audit.unknown());   // the engine's backward runs ...
//   newcomers.end_backward(/*keeps_grads=*/false);
//   Newcomers::FirstGradient first = newcomers.take(parameter);   // this rank's sum over the step's backwards
//
// Until then, `.grad` shows a mark, as it does for a trained parameter (grads/gradient_mark.h). If
// the program clears it, the gradient is dropped.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "grads/gradient_mark.h"

namespace gannet {

class Newcomers {
 public:
  /// `unknown`: the parameters that require a gradient and that this engine will train once they
  /// have joined.
  void begin_backward(const std::vector<std::pair<std::string, at::Tensor>>& unknown);
  /// `keeps_grads`: the program keeps `.grad`, with its graph.
  void end_backward(bool keeps_grads);
  struct FirstGradient {
    at::Tensor gradient;      // undefined: none
    bool is_cleared = false;  // the program reset `.grad` after the last backward
  };
  FirstGradient take(const at::Tensor& parameter);
  /// Called when the step restarts or has ended.
  void forget() noexcept;
  bool is_empty() const { return all_.empty(); }

 private:
  struct Newcomer {
    std::string name;
    at::Tensor parameter;
    at::Tensor aside = {};     // the `.grad` of another backward, while this engine's backward runs
    at::Tensor gathered = {};  // the gradient accumulated in this step
    at::Tensor shown = {};     // the tensor that the last backward left in `.grad`
    GradientMark mark = {};
    bool is_running = false, is_cleared = false;
  };
  static void drop_cleared(Newcomer& one);

  std::vector<Newcomer> all_;
};

}  // namespace gannet
