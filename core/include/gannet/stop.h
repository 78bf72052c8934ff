/// Stopping on request: a scheduler's SIGTERM or SIGUSR1 becomes a checkpoint and an orderly end.
///
///   gannet::StopSignals stop;                       // from here on SIGTERM and SIGUSR1 only set a mark
///   for (auto& batch : *loader) {
///     ...
///     engine->step();
///     if (stop.requested_on_any(*engine)) {         // every rank asks at the same place and gets the same answer
///       engine->save_checkpoint("run1");
///       return gannet::kStoppedExitCode;            // `gannet run` then neither reports a failure nor starts again
///     }
///   }
///
/// The library installs no signal handler on its own: this object does, and takes it back when it goes. `gannet run` and
/// SLURM's `--signal=USR1@120` send the signal to every rank, but ranks hear of it at different moments: one that asked
/// requested() alone might save while another begins the next step.
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

namespace gannet {

class EngineBase;
class ProcessGroup;

/// The exit code of a program that was asked to stop and saved what it needs to go on: 85, which is no shell's (126 and up), none
/// of sysexits.h (64 to 78) and none of gannet::Error::exit_code, and is HTCondor's usual code for the same.
inline constexpr int kStoppedExitCode = 85;

class StopSignals {
 public:
  /// SIGTERM and SIGUSR1. Throws Error(kOrder) while another StopSignals lives: signals belong to the whole process.
  StopSignals();
  /// These signals instead. Throws Error(kArgument) on one that no program can handle (SIGKILL, SIGSTOP).
  explicit StopSignals(std::initializer_list<int> signals);
  /// Gives each signal the handling that it had, unless the program has changed it since.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// One of the signals came to this process.
  bool requested() const noexcept { return signal() != 0; }
  /// The last one that came; 0 when none did.
  int signal() const noexcept;

  /// One of the signals came to any rank. Collective: every rank calls it at the same boundary, and all get the same answer.
  bool requested_on_any(EngineBase& engine) const;
  bool requested_on_any(ProcessGroup& group) const;

 private:
  void install(const std::vector<int>& signals);
  void restore() noexcept;
  struct Former;
  std::vector<Former> former_;
};

}  // namespace gannet
