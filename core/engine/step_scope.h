// The observers of one step at a boundary: the clock of its phases, the watch that compares the
// ranks, and the reports at its end. The phases themselves (step.cpp) are unaware of these.
//
//   StepScope scope(impl);
//   try {
//     scope.begin();          // after watch(): every rank is in this call
//     ... the phases ...
//     scope.end(result);      // compares fingerprints, and writes the profile and the report
//   } catch (...) {
//     scope.fail();           // marks parameters that are now undefined, and restarts the step
//   }
#pragma once

#include <gannet/engine.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "control/watch.h"
#include "observe/timers.h"

namespace gannet {

/// The learning rates and the loss scale of a step, from before its schedule and its scaler
/// advanced.
struct StepInputs {
  std::vector<double> lr;
  double loss_scale = 1;
};

class StepScope {
 public:
  /// `call`: the public call that this scope belongs to.
  explicit StepScope(EngineBase::Impl& impl, const char* call = "step");
  /// Lets the control plane compare the facts that the ranks must agree on. Throws Error(kMismatch)
  /// if they differ.
  void watch();
  void begin();
  void end(const StepResult& result);
  /// Called in a catch block. A step is a transaction: an exception before the update leaves the
  /// parameters unchanged, one during the update leaves them undefined, and one after the step
  /// reports that it was taken.
  [[noreturn]] void fail();

 private:
  EngineBase::Impl& impl_;
  const char* const name_;
  const int64_t steps_before_;
  std::optional<control::Watch::Call> call_;
  std::optional<Timers::Scope> timed_;
  StepInputs inputs_;
};

}  // namespace gannet
