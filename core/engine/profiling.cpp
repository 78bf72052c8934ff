#include "engine/profiling.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gannet/log.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <fstream>
#include <unordered_set>

#include "base/format.h"
#include "engine/impl.h"
#include "profiler/memory.h"
#include "profiler/recorder.h"
#include "profiler/report.h"

namespace gannet {
namespace {

double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

// Adds this rank's bytes for each parameter. The padding of buckets belongs to no parameter.
void add_training_memory(ModelProfile& profile, const profiler::Modules& modules, const EngineBase::Impl& impl) {
  for (const auto* ranges : {&impl.store.ranges(), &impl.store.frozen()})
    for (const Range& range : *ranges) {
      const bool is_trained = range.grad_dtype != at::ScalarType::Undefined;
      const auto here = range.numel_here();
      int64_t state_bytes = 0;
      if (const auto& optimizer = impl.groups[range.group].optimizer; is_trained && optimizer)
        for (size_t s = 0; s < range.states.size(); ++s)
          if (optimizer->states()[s].extent == GANNET_STATE_PER_ELEMENT)  // states that are not per element are negligible
            state_bytes += static_cast<int64_t>(c10::elementSize(range.states[s].dtype()));
      const auto size = [](at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); };
      for (size_t p = 0; p < range.parameters.size(); ++p) {
        const auto& parameter = range.parameters[p];
        ModelProfile::Memory bytes;
        bytes.parameters = here[p].parameter * size(range.dtype);
        if (is_trained) bytes.gradients = here[p].gradient * size(range.grad_dtype);
        if (is_trained && range.has_master_copy()) bytes.masters = here[p].own * size(range.master_dtype);
        bytes.states = here[p].own * state_bytes;
        profiler::add_memory(profile, modules, parameter.name, bytes);
      }
    }
  std::unordered_set<const void*> placed;
  for (const auto* ranges : {&impl.store.ranges(), &impl.store.frozen()})
    for (const Range& range : *ranges)
      for (const auto& parameter : range.parameters) placed.insert(parameter.tensor.unsafeGetTensorImpl());
  for (const auto& entry : impl.module->named_parameters())
    if (entry.value().defined() && placed.insert(entry.value().unsafeGetTensorImpl()).second)
      profiler::add_memory(profile, modules, entry.key(), {.parameters = static_cast<int64_t>(entry.value().nbytes())});
  profiler::add_buffers(profile, modules, *impl.module);
}

// Returns the number of parameter elements that this rank keeps.
int64_t parameters_here(const EngineBase::Impl& impl, int64_t all) {
  for (const auto* ranges : {&impl.store.ranges(), &impl.store.frozen()})
    for (const Range& range : *ranges) {
      const auto here = range.numel_here();
      for (size_t p = 0; p < here.size(); ++p) all -= range.parameters[p].numel - here[p].parameter;
    }
  return all;
}

}  // namespace

Profiling::Profiling(EngineBase::Impl& impl) : impl_(impl) {}
Profiling::~Profiling() = default;

Profiling::Clock::time_point Profiling::now() const {
  if (!impl_.computes_on_host()) c10::impl::VirtualGuardImpl(impl_.device.type()).synchronizeDevice(impl_.device.index());
  return Clock::now();
}

void Profiling::begin_forward() {
  const bool is_due = impl_.reducer && impl_.passes.training && at::GradMode::is_enabled() &&
                      impl_.progress.global_steps == impl_.settings().flops_profiler.profile_step;
  if (!is_due || is_done_) return pause();    // an evaluation or another step
  if (!impl_.progress.holds_micro_batch()) {  // a second forward before backward belongs to the first
    observing_.reset();
    recorder_ = std::make_shared<profiler::OperatorRecorder>(*impl_.module, impl_.computes_on_host());
    observing_ = std::make_unique<zero::ObserverScope>(recorder_);
    forward_seconds_ = 0;
    before_ = impl_.timers.now();
  }
  if (!observing_) return;
  forward_began_ = now();
  recorder_->listen(true);
}

void Profiling::finish_forward() {
  if (!forward_began_) return;
  recorder_->listen(false);
  forward_seconds_ += seconds(now() - *forward_began_);
  forward_began_.reset();
}

void Profiling::end_forward() {
  forward_began_.reset();
  if (!observing_) return;
  if (impl_.progress.state() == Progress::State::kForwarded)
    recorder_->listen(true);  // a loss that the program computes itself
  else
    observing_.reset();  // forward threw an exception
}

void Profiling::pause() {
  if (observing_) recorder_->listen(false);
}

void Profiling::begin_backward() {
  if (!observing_) return;
  recorder_->end_forward();
  backward_began_ = now();
  recorder_->listen(true);
}

void Profiling::end_backward() {
  if (!observing_) return;
  observing_.reset();
  backward_seconds_ = seconds(now() - backward_began_);
  is_done_ = true;
}

bool Profiling::report() {
  const auto& settings = impl_.settings();
  if (!is_done_)
    return impl_.progress.global_steps > settings.flops_profiler.profile_step;  // a run that resumes after that step skips it
  ModelProfile profile = recorder_->profile();
  profile.forward_seconds = forward_seconds_;
  profile.backward_seconds = backward_seconds_;
  add_training_memory(profile, recorder_->modules(), impl_);
  profiler::ProfiledStep run;
  run.step = settings.flops_profiler.profile_step;
  run.world_size = impl_.comm->size();
  run.micro_batch = settings.micro_batch_size;
  run.accumulation_steps = settings.accumulation_steps;
  run.zero_stage = settings.zero.stage;
  run.parameters_here = parameters_here(impl_, profile.parameters());
  run.recompute_fwd_factor = settings.flops_profiler.recompute_fwd_factor;
  const Timers::Times times = impl_.timers.now() - before_;
  run.step_seconds = times.whole(TimedPhase::kStep);
  run.iteration_seconds = times.whole(TimedPhase::kForward) + times.whole(TimedPhase::kBackward) + run.step_seconds;
  if (settings.zero.offload_optimizer)
    run.places += formatted("masters and states on {}", settings.zero.offload_optimizer.device);
  if (settings.zero.offload_param)
    run.places += (run.places.empty() ? "" : ", ") + (formatted("parameters on {}", settings.zero.offload_param.device));
  write(profiler::report(
      profile, {settings.flops_profiler.module_depth, settings.flops_profiler.top_modules, settings.flops_profiler.detailed},
      run));
  return true;
}

void Profiling::write(const std::string& text) const {
  const std::string& file = impl_.settings().flops_profiler.output_file;
  if (file.empty()) return log_info(text);
  std::error_code ignored;  // an error shows when the file is opened
  if (const auto folder = std::filesystem::path(file).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder, ignored);
  std::ofstream out(file, std::ios::trunc);
  out << text << std::flush;
  if (!out)
    log(LogLevel::kError, formatted("the FLOPs profile could not be written to {}; it follows here{}", file, text));
  else
    log_info(formatted("the FLOPs profile of step {} is in {}", impl_.settings().flops_profiler.profile_step, file));
}

}  // namespace gannet
