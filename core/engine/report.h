// The report phase of a step: writes the log, and passes values to the monitors (step_reporter.h).
#pragma once

#include <string>
#include <vector>

#include "engine/impl.h"
#include "engine/step_scope.h"

namespace gannet {

/// Opens the trace and the monitors that the config requests.
void start_reporting(EngineBase::Impl& impl);
/// Collects losses if an optimizer uses them, with or without monitors. Called again if the
/// optimizers change.
void collect_losses(EngineBase::Impl& impl);
/// The step's loss for optimizers that use it: the mean over micro-batches and ranks. NaN, without
/// a collective, if none does. Every rank calls it.
double loss_for_optimizers(EngineBase::Impl& impl);
void report(EngineBase::Impl& impl, const StepResult& result, const StepInputs& inputs);
/// Logs timings as DeepSpeed does: for the micro-batch at each step() and, at a boundary, for the
/// whole step.
void report_times(EngineBase::Impl& impl, bool is_boundary);
/// Returns the learning rate of each group that has one.
std::vector<double> rates(const std::vector<Group>& groups);
/// Returns a message such as "saved run1/global_step40, 1.2 GB in 0.8 s".
std::string sentence_of(const config::Settings& settings, const SaveReceipt& receipt);

}  // namespace gannet
