// The report phase of a step: writes the log, and passes values to the monitors (step_reporter.h).
// Also implements the calls through which a program adds to the report.
#include "engine/report.h"

#include <gannet/log.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "control/world.h"
#include "engine/impl.h"
#include "engine/memory_picture.h"
#include "engine/step_scope.h"
#include "engine/used_plugins.h"
#include "tensor/host_meter.h"

namespace gannet {
namespace {

// The ranks that combine their losses and counts. Pipeline stages report together: the loss is
// known on the last one, and rank 0, which writes the report, is on the first.
HostGroup& reporting_ranks(const EngineBase::Impl& impl) {
  return impl.mesh->has_pipe_stages() ? *impl.world_group : *impl.host_group;
}

// Returns the number of parameters of the whole model. Pipeline stages add up their counts, so all
// ranks call it.
int64_t count_parameters(const EngineBase::Impl& impl) {
  double count = 0;
  for (const auto* ranges : {&impl.store.ranges(), &impl.store.frozen()})
    for (const Range& range : *ranges) {
      if (range.is_counted_elsewhere) continue;  // another stage holds the tensor as well
      for (const auto& parameter : range.parameters) count += static_cast<double>(parameter.numel);
    }
  if (ProcessGroup* const stages = impl.mesh->pipe()) stages->links().host.all_reduce(&count, 1);
  return static_cast<int64_t>(count);
}

observe::Run run_of(const EngineBase::Impl& impl, int64_t parameters) {
  const config::Settings& settings = impl.settings();
  observe::Run run;
  run.world_size = reporting_ranks(impl).size();
  run.global_step = impl.progress.global_steps;
  run.parameters = parameters;
  run.train_batch_size = settings.train_batch_size;
  run.micro_batch_size = settings.micro_batch_size;
  run.accumulation_steps = settings.accumulation_steps;
  run.zero_stage = settings.zero.stage;
  const auto dtype = impl.store.ranges().empty() ? at::kFloat : impl.store.ranges()[0].dtype;
  run.dtype = dtype == at::kDouble ? "fp64" : dtype == at::kHalf ? "fp16" : dtype == at::kBFloat16 ? "bf16" : "fp32";
  run.config = impl.resolved.effective;
  for (const auto* plugin : used_plugins(impl))
    run.plugins.push_back({plugin::kind_name(plugin->kind()), plugin->name(), plugin->version(), plugin->file});
  for (const Group& group : impl.groups) {
    auto& one = run.groups.emplace_back();
    one.name = group.name;
    for (const at::Tensor& parameter : group.parameters) one.parameters += parameter.numel();
    for (size_t h = 0; h < group.hyper.size(); ++h) one.hyper.emplace_back(group.hyper_names[h], group.hyper[h]);
  }
  return run;
}

}  // namespace

void start_reporting(EngineBase::Impl& impl) {
  if (!impl.reducer) return;  // an engine that does not train
  if (!impl.settings().trace.path.empty()) {
    const auto& wanted = impl.settings().trace;
    impl.trace = std::make_unique<observe::Trace>(
        observe::Trace::Options{wanted.path, wanted.first_step, wanted.last_step, impl.world_group->rank()});
    impl.timers.trace = impl.trace.get();
  }
  impl.reported.bytes_sent = impl.comm->comm().counters().bytes_sent;
  if (impl.host_reads_device() && !impl.settings().metrics_path.empty()) HostMeter::install();
  if (observe::is_wanted(impl.settings())) {
    const int64_t parameters = count_parameters(impl);
    impl.reporter = std::make_unique<StepReporter>(
        reporting_ranks(impl), impl.timers,
        impl.is_first() ? std::make_unique<observe::Monitor>(impl.settings(), run_of(impl, parameters)) : nullptr);
  }
  collect_losses(impl);
}

void collect_losses(EngineBase::Impl& impl) {
  double using_ranks = std::any_of(impl.groups.begin(), impl.groups.end(), [](const Group& group) {
    return group.optimizer && group.optimizer->has(GANNET_OPTIMIZER_USES_LOSS);
  });
  // Pipeline stages have different groups, and average the loss together.
  if (impl.mesh->has_pipe_stages()) reporting_ranks(impl).all_reduce(&using_ranks, 1);
  impl.uses_loss = using_ranks > 0;
  if (impl.reporter || !impl.uses_loss) return;
  impl.reporter = std::make_unique<StepReporter>(reporting_ranks(impl), impl.timers, nullptr, /*is_metered=*/false);
}

double loss_for_optimizers(EngineBase::Impl& impl) {
  if (!impl.uses_loss) return std::numeric_limits<double>::quiet_NaN();
  double loss = impl.reporter->mean_loss();
  // Ranks along the tensor axis compute the same loss, but not always to the last bit.
  if (impl.tensor_group != nullptr && impl.tensor_group->size() > 1) {
    impl.tensor_group->all_reduce(&loss, 1);
    loss /= impl.tensor_group->size();
  }
  return loss;
}

std::vector<double> rates(const std::vector<Group>& groups) {
  std::vector<double> rates;
  for (auto& group : groups)
    if (const double* lr = group.find(GANNET_ROLE_LEARNING_RATE)) rates.push_back(*lr);
  return rates;
}

// Counts the bytes that this rank's Comm has sent since the last step, if an optimizer averages
// gradients itself.
void count_sent(EngineBase::Impl& impl) {
  const auto averages = [](const Group& group) { return group.optimizer && group.optimizer->owns_grad_reduction(); };
  if (std::none_of(impl.groups.begin(), impl.groups.end(), averages)) return;
  const uint64_t sent = impl.comm->comm().counters().bytes_sent;
  impl.reporter->count("comm_bytes", static_cast<int64_t>(sent - impl.reported.bytes_sent));
  impl.reported.bytes_sent = sent;
}

void report_times(EngineBase::Impl& impl, bool is_boundary) {
  const Timers::Times now = impl.timers.now();
  if (impl.is_first()) log_info(Breakdown(now - impl.reported.micro_batch).to_string("_microstep"));
  impl.reported.micro_batch = now;
  if (!is_boundary) return;
  if (impl.is_first()) log_info(Breakdown(now - impl.reported.step).to_string(""));
  impl.reported.step = now;
}

void report(EngineBase::Impl& impl, const StepResult& result, const StepInputs& inputs) {
  const bool leads = impl.is_first();
  const auto& every = impl.settings().steps_per_print;
  const bool prints = every && *every > 0 && impl.progress.global_steps % *every == 0;
  if (!result.applied && leads) log_warning(result.reason);
  if (impl.settings().wall_clock_breakdown) report_times(impl, true);
  if (prints && leads) {
    std::string line = formatted("step={}, skipped={}", impl.progress.global_steps, impl.progress.skipped_steps), text;
    for (const double lr : rates(impl.groups)) text += (text.empty() ? "" : ", ") + short_number(lr);
    log_info(formatted("{}, lr=[{}]{}", line, text,
                       impl.progress.grad_norm ? formatted(", grad_norm={}", short_number(*impl.progress.grad_norm)) : ""));
  }
  if (!impl.trace && !impl.reporter) return;
  const auto boundary = impl.reporter ? impl.reporter->boundary_now() : StepReporter::StepBoundary();
  Timers::Scope timed(impl.timers, TimedPhase::kTell);
  if (impl.trace) impl.trace->at(impl.progress.global_steps + 1, 0);
  if (!impl.reporter) return;
  if (!result.applied) impl.reporter->event("skip", impl.progress.global_steps, result.reason);
  observe::Step step;
  step.step = impl.progress.global_steps;
  step.samples = impl.progress.global_samples;
  step.lr = inputs.lr;
  step.next_lr = rates(impl.groups);
  step.grad_norm = impl.progress.grad_norm;
  step.loss_scale = inputs.loss_scale;
  step.next_loss_scale = impl.scaler.scale();
  step.has_loss_scale = impl.skip_policy.is_fp16;
  step.applied = result.applied;
  step.reason = result.reason;
  step.memory = memory_picture(impl, impl.store, *impl.reducer);
  impl.reporter->end_micro_batch();
  count_sent(impl);
  impl.reporter->step(std::move(step), boundary, impl.settings().wall_clock_breakdown, prints);
}

std::string sentence_of(const config::Settings& settings, const SaveReceipt& receipt) {
  const std::string seconds = formatted(" in {} s", short_number(receipt.seconds));
  if (settings.checkpoint_async) return formatted("copied {}{}, which is written in the background", receipt.path, seconds);
  return formatted("saved {}, {}{}", receipt.path, observe::bytes_text(receipt.bytes), seconds);
}

void EngineBase::count(std::string_view name, int64_t number) {
  if (impl_->reporter) impl_->reporter->count(name, number);
}

void EngineBase::record(std::string_view name, double value) {
  if (impl_->reporter) impl_->reporter->record(name, value);
}

}  // namespace gannet
