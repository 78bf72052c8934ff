#include "engine/step_scope.h"

#include "base/format.h"
#include "control/world.h"
#include "engine/impl.h"
#include "engine/report.h"
#include "tensor/torch_errors.h"

namespace gannet {
namespace {

// Rethrows an error that occurred after the step was complete: in its report, or in a comparison
// with the other ranks.
[[noreturn]] void rethrow_after_step(int64_t step) {
  try {
    throw;
  } catch (const Error& error) {
    throw Error(error.code(), formatted("{} (after step {} had been taken: the parameters are whole)", error.message(), step),
                error.next_step());
  }
}

std::string message_of_current_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return error.message();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of the program's own";
  }
}

}  // namespace

StepScope::StepScope(EngineBase::Impl& impl, const char* call)
    : impl_(impl), name_(call), steps_before_(impl.progress.global_steps) {}

void StepScope::watch() {
  call_.emplace(impl_.process_group->world()->watch(), impl_.watched_group(), name_, impl_.progress.global_steps + 1, "",
                control::Watch::Call::kAtOnce, &impl_.agreed(/*is_boundary=*/true));
}

void StepScope::begin() {
  inputs_ = {impl_.reporter ? rates(impl_.groups) : std::vector<double>(), impl_.scaler.scale()};
  timed_.emplace(impl_.timers, TimedPhase::kStep);
}

void StepScope::end(const StepResult& result) {
  timed_.reset();
  const int64_t every = impl_.settings().fingerprint_every;
  if (every > 0 && impl_.progress.global_steps % every == 0) impl_.compare_fingerprints("after a step");
  if (impl_.profiling && impl_.profiling->report()) impl_.profiling.reset();
  report(impl_, result, inputs_);
}

void StepScope::fail() {
  timed_.reset();
  if (call_) call_->fail();
  Progress& progress = impl_.progress;
  const std::string what = message_of_current_exception();
  if (progress.global_steps > steps_before_ && progress.is_whole()) rethrow_after_step(progress.global_steps);
  if (progress.is_updating())
    progress.tear(formatted("{}() failed in step {} while it changed them ({})", name_, progress.global_steps + 1, what));
  if (impl_.reporter) impl_.reporter->error(progress.global_steps + 1, what);
  impl_.restart_step();
  rethrow_as_ours(name_);
}

}  // namespace gannet
