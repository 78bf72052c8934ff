// The names of plugin kinds, and the exceptions for the status codes that plugins return.
#include <gannet/error.h>

#include "base/format.h"
#include "base/text.h"
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
      return ErrorCode::kPluginFault;  // GANNET_INTERNAL, or a number that the contract does not define
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

int32_t priority_of(const Plugin& accelerator) {
  const auto* api = static_cast<const gannet_accelerator_api*>(accelerator.descriptor->api);
  return GANNET_HAS(api, gannet_accelerator_api, priority) ? api->priority : int32_t{GANNET_PRIORITY_UNSAID};
}

std::string host_fingerprint() { return GANNET_FINGERPRINT; }

Error fault(const Plugin& plugin, const std::string& what) {
  return Error(
      ErrorCode::kPluginFault, what,
      formatted(
          "this is a fault of the plugin {} {}, not of the config and not of Gannet: tell its author, or use another version",
          plugin.name(), plugin.version()));
}

std::string ErrorBuffer::message() const { return printable(text_, Lines::kMany); }

void raise_unless_ok(int32_t status, const ErrorBuffer& error, const Plugin& plugin, const std::string& who) {
  if (status == GANNET_OK) return;
  const std::string message = error.message();
  const std::string what =
      formatted("{}: {}", who, message.empty() ? formatted("failed with status {} and gave no reason", status) : message);
  const ErrorCode code = code_of(status);
  throw code == ErrorCode::kPluginFault ? fault(plugin, what) : Error(code, what);
}

}  // namespace gannet::plugin
