// One backward of the engine, from the checks to its end (backward.cpp, scale.cpp).
#pragma once

#include <torch/csrc/autograd/function.h>

#include <vector>

#include "engine/impl.h"
#include "grads/split_backward.h"

namespace gannet {

struct BackwardPass {
  bool reduce = false;  // its gradients are averaged over the ranks as they arrive
  bool retain_graph = false;
  bool create_graph = false;  // the program also keeps `.grad`, with a graph
  bool inputs_alone = false;  // no parameter gets a gradient (run_input_pass)
};

/// Adds the gradients of all trained parameters that `outputs` depend on to the engine's buffers.
/// `gradients`: the gradients of the outputs, scaled as for a loss (seed); an undefined gradient of
/// a one-element output means 1. Called after forward(). If it throws, the caller calls
/// restart_step().
void run_backward(EngineBase::Impl& impl, const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients,
                  const BackwardPass& pass);
/// The same from the outputs' edges, which do not keep the outputs' memory alive.
void run_backward(EngineBase::Impl& impl, const torch::autograd::edge_list& roots, torch::autograd::variable_list gradients,
                  const BackwardPass& pass);

/// The same in two passes (grads/split_backward.h). The first one returns the gradients of `inputs`.
torch::autograd::variable_list run_input_pass(EngineBase::Impl& impl, const torch::autograd::edge_list& roots,
                                              const torch::autograd::variable_list& gradients,
                                              const torch::autograd::edge_list& inputs, SplitBackward& split);
void run_weight_pass(EngineBase::Impl& impl, SplitBackward split, const BackwardPass& pass);

void check_loss(const EngineBase::Impl& impl, const at::Tensor& loss, const char* call);
/// Passes the loss to the monitors. note_loss() returns false if the host can read the loss and it is
/// not finite; the check of the gradients, in which all pipeline stages take part, reports it later.
/// take_loss() throws Error(kNonFinite) at once, unless the skip policy skips such steps.
bool note_loss(EngineBase::Impl& impl, const at::Tensor& loss, const BackwardOptions& options);
void take_loss(EngineBase::Impl& impl, const at::Tensor& loss, const BackwardOptions& options);
double seed(const EngineBase::Impl& impl, const BackwardOptions& options);
bool reduces(const EngineBase::Impl& impl, const BackwardOptions& options);
void begin_backward(EngineBase::Impl& impl, const BackwardPass& pass, bool is_marked);
void end_backward(EngineBase::Impl& impl);
void give_up_backward(EngineBase::Impl& impl);
/// Clears `.grad` of the trained parameters.
void drop_user_gradients(EngineBase::Impl& impl);
/// Drops the engine's gradients, and any `.grad` that a create_graph backward left for the program.
void forget_gradients(EngineBase::Impl& impl);

}  // namespace gannet
