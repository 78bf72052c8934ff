// One backward of the engine, from the checks to its end (backward.cpp, scale.cpp).
#pragma once

#include <vector>

#include "engine/impl.h"

namespace gannet {

struct BackwardPass {
  bool reduce = false;  // its gradients are averaged over the ranks as they arrive
  bool retain_graph = false;
  bool create_graph = false;  // `.grad` stays with the program too, with a graph
};

/// Gradients of all trained parameters that `outputs` depend on, into the engine's buffers. `gradients`: of the outputs, scaled
/// as a loss is (seed); undefined for an output of one element: 1. After forward(). An exception leaves restart_step() to the
/// caller.
void run_backward(EngineBase::Impl& impl, const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients,
                  const BackwardPass& pass);

void check_loss(const EngineBase::Impl& impl, const at::Tensor& loss, const char* call);
void take_loss(EngineBase::Impl& impl, const at::Tensor& loss, const BackwardOptions& options);
double seed(const EngineBase::Impl& impl, const BackwardOptions& options);
bool reduces(const EngineBase::Impl& impl, const BackwardOptions& options);
void begin_backward(EngineBase::Impl& impl, const BackwardPass& pass, bool is_marked);
void end_backward(EngineBase::Impl& impl);
void give_up_backward(EngineBase::Impl& impl);
/// `.grad` of the trained parameters.
void drop_user_gradients(EngineBase::Impl& impl);
/// The engine's own, and what a create_graph backward left with the program.
void forget_gradients(EngineBase::Impl& impl);

}  // namespace gannet
