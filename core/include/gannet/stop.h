/// Stops a run on request: turns a scheduler's SIGTERM or SIGUSR1 into a checkpoint and an orderly
/// shutdown.
///
///   gannet::StopSignals stop;                       // from here on SIGTERM and SIGUSR1 only set a flag
///   for (auto& batch : *loader) {
///     ...
///     engine->step();
///     if (stop.requested_on_any(*engine)) {         // every rank calls it at the same place and gets the same answer
///       engine->save_checkpoint("run1");
///       return gannet::kStoppedExitCode;            // `gannet run` then neither reports a failure nor restarts
///     }
///   }
///
/// The library installs no signal handlers on its own: this object installs them, and its
/// destructor restores the former ones. `gannet run` and SLURM's `--signal=USR1@120` send the
/// signal to every rank, but it arrives at different times: a rank that checks only requested()
/// might save while another begins the next step.
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

namespace gannet {

class EngineBase;
class ProcessGroup;

/// The exit code of a program that was asked to stop and saved what it needs to resume: 85. It
/// differs from the codes of shells (126 and up), of sysexits.h (64 to 78) and of
/// gannet::Error::exit_code for other errors, and is HTCondor's usual code for this purpose.
inline constexpr int kStoppedExitCode = 85;

class StopSignals {
 public:
  /// Handles SIGTERM and SIGUSR1. Throws Error(kOrder) while another StopSignals exists, since
  /// signals belong to the whole process.
  StopSignals();
  /// Handles these signals instead. Throws Error(kArgument) on an empty list and on a signal that
  /// no program can handle (SIGKILL, SIGSTOP).
  explicit StopSignals(std::initializer_list<int> signals);
  /// Restores the former handling of each signal, unless the program has changed it since.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Whether one of the signals has arrived in this process.
  bool requested() const noexcept { return signal() != 0; }
  /// The last signal that arrived; 0 if none did.
  int signal() const noexcept;

  /// Whether one of the signals has arrived on any rank. Collective: every rank calls it at the
  /// same boundary, and all get the same answer.
  bool requested_on_any(EngineBase& engine) const;
  bool requested_on_any(ProcessGroup& group) const;

 private:
  void install(const std::vector<int>& signals);
  void restore() noexcept;
  struct Former;
  std::vector<Former> former_;
};

}  // namespace gannet
