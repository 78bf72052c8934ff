/// The one exception type of the public API.
///
///   try { gannet::initialize(model, {.config = "ds_config.json"}); }
///   catch (const gannet::Error& error) { std::cerr << error.what() << '\n'; return error.exit_code(); }
///
/// The error for a user's mistake states what happened, where (file:line:column, rank, parameter),
/// what was found, and what to do next. A bug in Gannet itself is thrown as kInternal with file and
/// line by GANNET_CHECK (core/base/check.h).
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

namespace gannet {

enum class ErrorCode {
  kConfig,              ///< the config is malformed or has an invalid value
  kArgument,            ///< an argument of an API call is wrong
  kOrder,               ///< forward, backward and step were called in the wrong order
  kPlugin,              ///< a plugin is missing, broken or was refused
  kPluginFault,         ///< a bug in a plugin: it threw, or returned an unexplained status
  kUnavailable,         ///< hardware or driver is missing
  kUnsupported,         ///< a valid request, but Gannet does not support it (yet)
  kNotFound,            ///< a file, folder, key or checkpoint is missing
  kIo,                  ///< reading or writing failed
  kCorrupt,             ///< a file's content is invalid
  kMismatch,            ///< ranks differ, or a model and its file, or a checkpoint and a run
  kTimeout,             ///< a deadline passed
  kPeerLost,            ///< another rank died
  kNonFinite,           ///< a loss or gradient is NaN or infinite
  kLossScaleExhausted,  ///< overflow at the smallest loss scale
  kOutOfMemory,
  kDevice,    ///< the device reported an error: a failed kernel, an illegal address, an assertion on the device
  kStopped,   ///< a signal asked the process to stop (gannet/stop.h)
  kInternal,  ///< a bug in Gannet
};

/// The name of a code as it is written in logs: "config", "plugin" ...
const char* to_string(ErrorCode code) noexcept;

class Error : public std::runtime_error {
 public:
  /// `what_happened` is one sentence, which includes the place and what was found there.
  /// `next_step` is what the user should do next; it may be empty.
  Error(ErrorCode code, const std::string& what_happened, const std::string& next_step = "");

  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  const std::string& next_step() const noexcept { return next_step_; }
  /// A process exit code for this kind of failure: 2 for a mistake in the config or the program; 3
  /// if the same program may succeed when run again or elsewhere (memory, files, the device, a lost
  /// rank, non-finite values); 70 for a bug in Gannet; 71 for a bug in a plugin; 85
  /// (kStoppedExitCode) after a signal that asked the process to stop.
  int exit_code() const noexcept;

 private:
  ErrorCode code_;
  std::string message_;
  std::string next_step_;
};

/// Converts an exception to a gannet::Error; one that is a gannet::Error already is returned
/// unchanged. LibTorch throws its own exception if a program asks for the address (`data_ptr()`) of
/// a parameter that is not in memory (ZeRO stage 3, outside of forward); this becomes an
/// Error(kOrder) with the parameter's name. Returns nullopt for all other exceptions. For a
/// program's last catch:
///   catch (const std::exception& error) {
///     const auto ours = gannet::error_of(error);
///     std::cerr << (ours ? ours->what() : error.what()) << '\n';
///     return ours ? ours->exit_code() : 1;
///   }
std::optional<Error> error_of(const std::exception& exception);

}  // namespace gannet
