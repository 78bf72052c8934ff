// Names of kinds and what a plugin's status means as an exception.
#include <gannet/error.h>

#include "plugin/plugin.h"

namespace gannet::plugin {
namespace {

ErrorCode code_of(int32_t status) {
  switch (status) {
    case GANNET_INVALID_ARGUMENT:
      return ErrorCode::kArgument;
    case GANNET_UNSUPPORTED:
      return ErrorCode::kUnsupported;
    case GANNET_OUT_OF_MEMORY:
      return ErrorCode::kOutOfMemory;
    case GANNET_IO_ERROR:
      return ErrorCode::kIo;
    case GANNET_TIMEOUT:
      return ErrorCode::kTimeout;
    case GANNET_PEER_LOST:
      return ErrorCode::kPeerLost;
    case GANNET_UNAVAILABLE:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kPlugin;  // GANNET_INTERNAL is a defect of the plugin, not of Gannet
  }
}

}  // namespace

const char* kind_name(gannet_kind kind) {
  switch (kind) {
    case GANNET_KIND_ACCELERATOR:
      return "accelerator";
    case GANNET_KIND_OPTIMIZER:
      return "optimizer";
    case GANNET_KIND_SCHEDULER:
      return "scheduler";
    case GANNET_KIND_OFFLOAD:
      return "offload";
    case GANNET_KIND_COMM:
      return "comm";
  }
  return "unknown";
}

std::string host_fingerprint() { return GANNET_FINGERPRINT; }

void raise_unless_ok(int32_t status, const ErrorBuffer& error, const std::string& who) {
  if (status == GANNET_OK) return;
  const std::string message = error.message();
  throw Error(code_of(status),
              who + ": " + (message.empty() ? "failed with status " + std::to_string(status) + " and gave no reason" : message));
}

}  // namespace gannet::plugin
