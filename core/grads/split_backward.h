// A backward in two passes over an unmodified graph: first the gradients of some inputs, which
// another stage waits for; later those of the parameters. The parameters' gradients and hooks are
// the same as in a single backward, bit for bit.
//
//   SplitBackward split;
//   auto gradients = split.input_pass(roots, of_roots, inputs);   // no parameter gets a gradient
//   split.weight_pass();
//
// The first pass releases what only it needs: between the passes, the graph keeps the tensors from
// which parameters' gradients are computed, and the gradients that flow into those operators.
//
// Schedules with split backwards: Qi et al. 2023, "Zero Bubble Pipeline Parallelism".
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace torch::autograd {
using edge_list = std::vector<Edge>;
}

namespace gannet {

class SplitBackward {
 public:
  /// The first pass: runs backward from `roots`, with their gradients, to `inputs` only. Returns the
  /// inputs' gradients; undefined: none. Then only weight_pass() may use the graph. Tensor hooks run
  /// once, in the first pass to reach them; a node's (Node::add_pre_hook) run in both if it leads to
  /// inputs and parameters. Throws Error(kUnsupported) if a node changes its gradient in place.
  std::vector<at::Tensor> input_pass(const torch::autograd::edge_list& roots, const std::vector<at::Tensor>& of_roots,
                                     const torch::autograd::edge_list& inputs);
  /// The second pass: computes the gradients of the parameters, and releases the graph.
  void weight_pass();
  /// Identifies this backward in the process, in both passes.
  int64_t number() const { return number_; }

 private:
  void add(torch::autograd::Edge root, at::Tensor gradient);

  int64_t number_ = next_number();
  static int64_t next_number();
  torch::autograd::edge_list roots_;   // roots of the second pass
  std::vector<at::Tensor> gradients_;  // [roots_]
};

}  // namespace gannet
