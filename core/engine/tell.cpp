// The phase tell of a step: the log, and what monitors are given (telling.h); and the calls that a program adds to it with.
#include <gannet/log.h>

#include <cstdio>

#include "engine/impl.h"

namespace gannet {
namespace {

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", number);
  return text;
}

monitor::Run run_of(const EngineBase::Impl& impl) {
  const config::Settings& settings = impl.settings();
  monitor::Run run;
  run.world_size = impl.comm->size();
  run.global_step = impl.global_steps;
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

void EngineBase::Impl::start_telling() {
  if (!reducer) return;  // an engine that does not train
  if (!settings().trace.path.empty()) {
    const auto& wanted = settings().trace;
    trace =
        std::make_unique<monitor::Trace>(monitor::Trace::Options{wanted.path, wanted.first_step, wanted.last_step, comm->rank()});
    timers.trace = trace.get();
  }
  if (monitor::is_wanted(settings()))
    telling = std::make_unique<Telling>(
        *comm, timers, comm->rank() == 0 ? std::make_unique<monitor::Monitor>(settings(), run_of(*this)) : nullptr);
}

std::vector<double> EngineBase::Impl::rates() const {
  std::vector<double> rates;
  for (auto& group : groups)
    if (const double* lr = group.find("lr")) rates.push_back(*lr);
  return rates;
}

// DeepSpeed's lines: of the micro-batch at each step(), of the step at a boundary.
void EngineBase::Impl::tell_times(bool is_boundary) {
  const Timers::Times now = timers.now();
  if (comm->rank() == 0) log_info(Breakdown(now - micro_batch_before).to_string("_microstep"));
  micro_batch_before = now;
  if (!is_boundary) return;
  if (comm->rank() == 0) log_info(Breakdown(now - step_before).to_string(""));
  step_before = now;
}

void EngineBase::Impl::tell(const StepResult& result, const Used& used) {
  const bool is_first = comm->rank() == 0;
  const auto& every = settings().steps_per_print;
  const bool prints = every && *every > 0 && global_steps % *every == 0;
  if (!result.applied && is_first) log_warning(result.reason);
  if (settings().wall_clock_breakdown) tell_times(true);
  if (prints && is_first) {
    std::string line = "step=" + std::to_string(global_steps) + ", skipped=" + std::to_string(skipped_steps), text;
    for (const double lr : rates()) text += (text.empty() ? "" : ", ") + short_number(lr);
    log_info(line + ", lr=[" + text + "]" + (grad_norm ? ", grad_norm=" + short_number(*grad_norm) : ""));
  }
  if (!trace && !telling) return;
  const auto boundary = telling ? telling->boundary_now() : Telling::Boundary();
  Timers::Scope timed(timers, Timed::kTell);
  if (trace) trace->at(global_steps + 1, 0);
  if (!telling) return;
  if (!result.applied) telling->event("skip", global_steps, result.reason);
  monitor::Step step;
  step.step = global_steps;
  step.samples = global_samples;
  step.lr = used.lr;
  step.next_lr = rates();
  step.grad_norm = grad_norm;
  step.loss_scale = used.loss_scale;
  step.next_loss_scale = scaler.scale();
  step.has_loss_scale = is_fp16;
  step.applied = result.applied;
  step.reason = result.reason;
  telling->end_micro_batch();
  telling->step(std::move(step), boundary, settings().wall_clock_breakdown, prints);
}

std::string EngineBase::Impl::sentence_of(const SaveReceipt& receipt) const {
  const std::string seconds = " in " + short_number(receipt.seconds) + " s";
  if (settings().checkpoint_async) return "copied " + receipt.path + seconds + ", which is written in the background";
  return "saved " + receipt.path + ", " + monitor::bytes_text(receipt.bytes) + seconds;
}

void EngineBase::count(std::string_view name, int64_t number) {
  if (impl_->telling) impl_->telling->count(name, number);
}

void EngineBase::record(std::string_view name, double value) {
  if (impl_->telling) impl_->telling->record(name, value);
}

}  // namespace gannet
