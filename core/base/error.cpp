#include <gannet/error.h>
#include <gannet/stop.h>

namespace gannet {

const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kConfig:
      return "config";
    case ErrorCode::kArgument:
      return "argument";
    case ErrorCode::kOrder:
      return "order";
    case ErrorCode::kPlugin:
      return "plugin";
    case ErrorCode::kPluginFault:
      return "plugin fault";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kIo:
      return "input/output";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kTimeout:
      return "time-out";
    case ErrorCode::kPeerLost:
      return "peer lost";
    case ErrorCode::kNonFinite:
      return "not finite";
    case ErrorCode::kLossScaleExhausted:
      return "loss scale exhausted";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kDevice:
      return "device";
    case ErrorCode::kStopped:
      return "stopped";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, const std::string& what_happened, const std::string& next_step)
    : std::runtime_error(next_step.empty() ? what_happened : what_happened + "\n  (" + next_step + ")"),
      code_(code),
      message_(what_happened),
      next_step_(next_step) {}

int Error::exit_code() const noexcept {
  switch (code_) {
    case ErrorCode::kInternal:
      return 70;
    case ErrorCode::kPluginFault:
      return 71;
    case ErrorCode::kStopped:
      return kStoppedExitCode;
    case ErrorCode::kUnavailable:
    case ErrorCode::kIo:
    case ErrorCode::kCorrupt:
    case ErrorCode::kTimeout:
    case ErrorCode::kPeerLost:
    case ErrorCode::kNonFinite:
    case ErrorCode::kLossScaleExhausted:
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kDevice:
      return 3;
    default:
      return 2;
  }
}

}  // namespace gannet
