// The phase report of a step: the log, and what monitors are given (step_reporter.h); and the calls that a program adds to it
// with.
#include <gannet/log.h>

#include "base/format.h"
#include "base/text.h"
#include "engine/impl.h"
#include "engine/step_scope.h"

namespace gannet {
namespace {

observe::Run run_of(const EngineBase::Impl& impl) {
  const config::Settings& settings = impl.settings();
  observe::Run run;
  run.world_size = impl.comm->size();
  run.global_step = impl.progress.global_steps;
  for (const auto* ranges : {&impl.ranges, &impl.frozen})
    for (const Range& range : *ranges)
      for (const auto& parameter : range.parameters) run.parameters += parameter.numel;
  run.train_batch_size = settings.train_batch_size;
  run.micro_batch_size = settings.micro_batch_size;
  run.accumulation_steps = settings.accumulation_steps;
  run.zero_stage = settings.zero.stage;
  const auto dtype = impl.ranges.empty() ? at::kFloat : impl.ranges[0].dtype;
  run.dtype = dtype == at::kDouble ? "fp64" : dtype == at::kHalf ? "fp16" : dtype == at::kBFloat16 ? "bf16" : "fp32";
  run.config = impl.resolved.effective;
  for (const auto* plugin : impl.registry->opened())
    run.plugins.push_back({plugin::kind_name(plugin->kind()), plugin->name(), plugin->version(), plugin->file});
  return run;
}

}  // namespace

void EngineBase::Impl::start_reporting() {
  if (!reducer) return;  // an engine that does not train
  if (!settings().trace.path.empty()) {
    const auto& wanted = settings().trace;
    trace =
        std::make_unique<observe::Trace>(observe::Trace::Options{wanted.path, wanted.first_step, wanted.last_step, comm->rank()});
    timers.trace = trace.get();
  }
  if (observe::is_wanted(settings()))
    reporter = std::make_unique<StepReporter>(
        *host_group, timers, is_first() ? std::make_unique<observe::Monitor>(settings(), run_of(*this)) : nullptr);
}

std::vector<double> EngineBase::Impl::rates() const {
  std::vector<double> rates;
  for (auto& group : groups)
    if (const double* lr = group.find("lr")) rates.push_back(*lr);
  return rates;
}

// DeepSpeed's lines: of the micro-batch at each step(), of the step at a boundary.
void EngineBase::Impl::report_times(bool is_boundary) {
  const Timers::Times now = timers.now();
  if (is_first()) log_info(Breakdown(now - micro_batch_before).to_string("_microstep"));
  micro_batch_before = now;
  if (!is_boundary) return;
  if (is_first()) log_info(Breakdown(now - step_before).to_string(""));
  step_before = now;
}

void EngineBase::Impl::report(const StepResult& result, const StepInputs& inputs) {
  const bool leads = is_first();
  const auto& every = settings().steps_per_print;
  const bool prints = every && *every > 0 && progress.global_steps % *every == 0;
  if (!result.applied && leads) log_warning(result.reason);
  if (settings().wall_clock_breakdown) report_times(true);
  if (leads && prints) {
    std::string line = formatted("step={}, skipped={}", progress.global_steps, progress.skipped_steps), text;
    for (const double lr : rates()) text += (text.empty() ? "" : ", ") + short_number(lr);
    log_info(formatted("{}, lr=[{}]{}", line, text,
                       progress.grad_norm ? formatted(", grad_norm={}", short_number(*progress.grad_norm)) : ""));
  }
  if (!trace && !reporter) return;
  const auto boundary = reporter ? reporter->boundary_now() : StepReporter::Boundary();
  Timers::Scope timed(timers, Timed::kTell);
  if (trace) trace->at(progress.global_steps + 1, 0);
  if (!reporter) return;
  if (!result.applied) reporter->event("skip", progress.global_steps, result.reason);
  observe::Step step;
  step.step = progress.global_steps;
  step.samples = progress.global_samples;
  step.lr = inputs.lr;
  step.next_lr = rates();
  step.grad_norm = progress.grad_norm;
  step.loss_scale = inputs.loss_scale;
  step.next_loss_scale = scaler.scale();
  step.has_loss_scale = skip_policy.is_fp16;
  step.applied = result.applied;
  step.reason = result.reason;
  reporter->end_micro_batch();
  reporter->step(std::move(step), boundary, settings().wall_clock_breakdown, prints);
}

std::string EngineBase::Impl::sentence_of(const SaveReceipt& receipt) const {
  const std::string seconds = formatted(" in {} s", short_number(receipt.seconds));
  if (settings().checkpoint_async) return formatted("copied {}{}, which is written in the background", receipt.path, seconds);
  return formatted("saved {}, {}{}", receipt.path, observe::bytes_text(receipt.bytes), seconds);
}

void EngineBase::count(std::string_view name, int64_t number) {
  if (impl_->reporter) impl_->reporter->count(name, number);
}

void EngineBase::record(std::string_view name, double value) {
  if (impl_->reporter) impl_->reporter->record(name, value);
}

}  // namespace gannet
