// The phases that every pass of a step ends with, up to the check of its gradients: of step() (step.cpp), and of the earlier
// passes of a step that has several (earlier_pass.cpp).
#pragma once

#include <string>

#include "engine/gate.h"
#include "engine/impl.h"
#include "engine/step_scope.h"
#include "grads/check.h"

namespace gannet::boundary {

/// What the program can call in the wrong order, before anything is touched. `call`: kStep, kPerturb ..., which the gate let in.
void check_order(EngineBase::Impl& impl, Call call);
/// Between two boundaries: the micro-batch is accumulated.
StepResult end_micro_batch(EngineBase::Impl& impl, const char* call);
/// The parameters and gradients are what this engine left, the ranks are together, and no operator is looked at any more.
void begin(EngineBase::Impl& impl, StepScope& scope, const char* call);
void reduce(EngineBase::Impl& impl);
GradientCheck check(EngineBase::Impl& impl);
/// Of gradients that are not finite: the first element that is not. All ranks call it.
std::string not_finite(EngineBase::Impl& impl);
/// Averages and unscales the gradients.
double factor(const EngineBase::Impl& impl);
/// Trained parameters have other values: a graph that saved the old ones says so in backward, as torch.optim's does.
void bump_versions(EngineBase::Impl& impl);

}  // namespace gannet::boundary
