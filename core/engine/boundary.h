// The phases at the end of every pass of a step, up to the check of its gradients. They are shared
// by step() (step.cpp) and the earlier passes of a step that has several (earlier_pass.cpp).
#pragma once

#include <string>

#include "engine/gate.h"
#include "engine/impl.h"
#include "engine/step_scope.h"
#include "grads/check.h"

namespace gannet::boundary {

/// Checks for calls in the wrong order, before anything is changed. `call`: the call that ends the
/// pass (kStep, kPerturb ...), which the gate has already admitted.
void check_order(EngineBase::Impl& impl, Call call);
/// Ends a micro-batch between two boundaries: its gradients are accumulated.
StepResult end_micro_batch(EngineBase::Impl& impl, const char* call);
/// Begins a boundary: checks that parameters and gradients are those that this engine left, meets
/// the other ranks, and stops intercepting operators.
void begin(EngineBase::Impl& impl, StepScope& scope, const char* call);
void reduce(EngineBase::Impl& impl);
GradientCheck check(EngineBase::Impl& impl);
/// Names the first gradient element that is not finite. All ranks call it.
std::string not_finite(EngineBase::Impl& impl);
/// Returns the factor that averages and unscales the gradients.
double factor(const EngineBase::Impl& impl);
/// Marks trained parameters as changed: a graph that saved old values then throws in backward, as
/// with torch.optim.
void bump_versions(EngineBase::Impl& impl);

}  // namespace gannet::boundary
