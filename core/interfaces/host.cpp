#include "interfaces/host.h"

#include <gannet/error.h>
#include <gannet/log.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <gannet/sdk_errors.hpp>
#include <string>

#include "base/format.h"
#include "base/parallel.h"
#include "base/text.h"
#include "plugin/inside.h"
#include "plugin/plugin.h"

namespace gannet {
namespace {

int32_t status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kArgument:
    case ErrorCode::kConfig:
      return GANNET_INVALID_ARGUMENT;
    case ErrorCode::kUnsupported:
      return GANNET_UNSUPPORTED;
    case ErrorCode::kOutOfMemory:
      return GANNET_OUT_OF_MEMORY;
    case ErrorCode::kIo:
      return GANNET_IO_ERROR;
    case ErrorCode::kTimeout:
      return GANNET_TIMEOUT;
    case ErrorCode::kPeerLost:
      return GANNET_PEER_LOST;
    case ErrorCode::kUnavailable:
      return GANNET_UNAVAILABLE;
    default:
      return GANNET_INTERNAL;
  }
}

// Keeps the host's exceptions from passing into a plugin, which may be written in C.
template <class Body>
int32_t guarded(gannet_error* error, Body&& body) noexcept {
  return sdk::guarded(error, [&] {
    try {
      body();
    } catch (const Error& failure) {
      throw sdk::Failure(static_cast<gannet_status>(status_of(failure.code())), failure.what());
    }
  });
}

void run_collective(void* context, const gannet_host_collective* args) {
  HostCollectives* const collectives = static_cast<Host*>(context)->collectives();
  if (!collectives)
    throw Error(
        ErrorCode::kPluginFault,
        "the host's collectives were called outside of an optimizer's begin_step and end_step, or of an update that averages "
        "gradients itself: no other rank takes part there");
  if (!args || !GANNET_HAS(args, gannet_host_collective, stream))
    throw Error(ErrorCode::kArgument, "a collective was asked for with too short a struct");
  if (args->group != GANNET_GROUP_DATA)
    throw Error(ErrorCode::kUnsupported, formatted("a collective was asked for of an unknown group, {}", args->group));
  collectives->run(*args);
}

constexpr size_t kLongestMetricName = 64;

void run_metric(void* context, const char* name, double value) {
  const Host& host = *static_cast<Host*>(context);
  if (host.metric_thread() != std::this_thread::get_id() && host.metric_thread() != std::thread::id())
    throw Error(ErrorCode::kPluginFault, "metric() was called from a thread that the host did not call the plugin on");
  const Host::ShowMetric& show = host.show_metric();
  if (!show) throw Error(ErrorCode::kPluginFault, "metric() was called outside of an optimizer's begin_step and end_step");
  const std::string given = name ? name : "";
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' ||
           c == '/';
  };
  if (given.empty() || given.size() > kLongestMetricName || !std::all_of(given.begin(), given.end(), is_allowed))
    throw Error(ErrorCode::kPluginFault,
                formatted("metric() was given the name '{}': 1 to {} letters, digits, '_', '-', '.', '/' are allowed",
                          printable(given), kLongestMetricName));
  show(given, value);
}

void write_log(void*, int32_t level, const char* message) noexcept {
  guarded(nullptr, [&] {
    log(static_cast<LogLevel>(std::clamp<int32_t>(level, GANNET_LOG_DEBUG, GANNET_LOG_ERROR)),
        printable(message ? message : "(null)", Lines::kMany));
  });
}

// A plugin's loop body. A body that was written with the SDK never throws. One that was written
// without it may throw; its message is then only logged, since a loop body has no gannet_error.
struct LoopBody {
  gannet_loop_body body;
  void* argument;
  const plugin::PluginCallMark* caller;

  static int32_t run(void* self, uint64_t begin, uint64_t end) noexcept {
    const auto& [body, argument, caller] = *static_cast<LoopBody*>(self);
    const plugin::PluginCallMark inside(caller);
    plugin::ErrorBuffer error;
    int32_t status = GANNET_OK;
    const int32_t thrown = guarded(error, [&] { status = body(argument, begin, end); });
    if (thrown == GANNET_OK) return status;
    guarded(nullptr, [&] {
      log(LogLevel::kError, formatted("a plugin's loop body threw an exception across the contract: {}", error.message()));
    });
    return thrown;
  }
};

int32_t run_parallel(void*, uint64_t begin, uint64_t end, uint64_t grain, gannet_loop_body body, void* argument) noexcept {
  int32_t status = GANNET_INVALID_ARGUMENT;
  if (!body) return status;
  const plugin::HostEnvironmentScope environment;  // threads started by the loop keep this environment
  LoopBody shared{body, argument, plugin::PluginCallMark::current()};
  const int32_t failed = guarded(nullptr, [&] { status = parallel_for(begin, end, grain, LoopBody::run, &shared); });
  return failed != GANNET_OK ? failed : status;
}

void* allocate(void*, uint64_t bytes, uint64_t alignment) noexcept {
  const uint64_t effective = std::max<uint64_t>(alignment, 64);
  void* pointer = nullptr;
  if (!std::has_single_bit(effective) || posix_memalign(&pointer, effective, std::max<uint64_t>(bytes, 1)) != 0) return nullptr;
  return pointer;
}

}  // namespace

Host::Host() {
  table_.struct_size = sizeof(table_);
  table_.abi_major = GANNET_ABI_MAJOR;
  table_.abi_minor = GANNET_ABI_MINOR;
  table_.context = this;
  table_.log = write_log;
  table_.parallel_for = run_parallel;
  table_.thread_count = [](void*) -> uint32_t { return parallel_thread_count(); };
  table_.allocate = allocate;
  table_.deallocate = [](void*, void* pointer) { std::free(pointer); };
  table_.rank = [](void* context, uint32_t) -> uint32_t { return static_cast<Host*>(context)->rank(); };
  table_.world_size = [](void* context, uint32_t) -> uint32_t { return static_cast<Host*>(context)->size(); };
  table_.collective = [](void* context, const gannet_host_collective* args, gannet_error* error) -> int32_t {
    return guarded(error, [&] { run_collective(context, args); });
  };
  table_.metric = [](void* context, const char* name, double value, gannet_error* error) -> int32_t {
    return guarded(error, [&] { run_metric(context, name, value); });
  };
}

}  // namespace gannet
