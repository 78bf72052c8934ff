/// The host's services for plugins in C++: log, threads, ranks, collectives. Part of
/// gannet/sdk.hpp.
#pragma once

#include <gannet/abi.h>

#include <atomic>
#include <cstring>
#include <gannet/sdk_errors.hpp>
#include <string>
#include <type_traits>

namespace gannet::sdk {

/// Base of every plugin object: holds the host table.
class HostServices {
 public:
  explicit HostServices(const gannet_host& host) : host_(&host) {}
  const gannet_host& host() const { return *host_; }

  void log(gannet_log_level level, const std::string& message) const { host_->log(host_->context, level, message.c_str()); }
  void warn(const std::string& message) const { log(GANNET_LOG_WARNING, message); }

  /// The rank and the number of ranks in the group that shares the work on the same parameters.
  uint32_t rank() const { return host_->rank(host_->context, GANNET_GROUP_DATA); }
  uint32_t world_size() const { return host_->world_size(host_->context, GANNET_GROUP_DATA); }
  /// The number of threads that parallel_for uses. A result must not depend on it.
  uint32_t thread_count() const { return host_->thread_count(host_->context); }
  /// Runs a collective of these ranks; allowed only where gannet_host::collective allows it.
  void collective(gannet_host_collective args) const {
    char text[1024] = "";
    gannet_error error{sizeof(gannet_error), 0, sizeof(text), text};
    args.struct_size = sizeof(args);
    const int32_t status = host_->collective(host_->context, &args, &error);
    if (status != GANNET_OK) throw Failure(static_cast<gannet_status>(status), text);
  }

#if GANNET_TARGET_MINOR >= 4
  /// Reports a number of this step in the run's metrics, as "optimizer/NAME". Call it only in
  /// begin_step and end_step. Does nothing on a host older than 2.4.
  void metric(const char* name, double value) const {
    if (!GANNET_HAS(host_, gannet_host, metric)) return;
    char text[1024] = "";
    gannet_error error{sizeof(gannet_error), 0, sizeof(text), text};
    const int32_t status = host_->metric(host_->context, name, value, &error);
    if (status != GANNET_OK) throw Failure(static_cast<gannet_status>(status), text);
  }
#endif

  /// Runs body(begin, end) over [0, count) on the host's threads, in chunks that are multiples of
  /// `grain`. If the body throws, rethrows the first exception as a Failure with its status code
  /// and message.
  template <class Body>
  void parallel_for(uint64_t count, uint64_t grain, Body&& body) const {
    struct Loop {
      std::remove_reference_t<Body>* body;
      std::atomic<bool> has_failed{false};
      int32_t status = GANNET_OK;  // status and text are set by the chunk that set has_failed, and read after the loop
      char text[1024] = "";
    } loop{&body};
    auto run = [](void* argument, uint64_t begin, uint64_t end) -> int32_t {
      auto& shared = *static_cast<Loop*>(argument);
      char text[sizeof(Loop::text)] = "";
      gannet_error error{sizeof(gannet_error), 0, sizeof(text), text};
      const int32_t code = guarded(&error, [&] { (*shared.body)(begin, end); });
      if (code == GANNET_OK || shared.has_failed.exchange(true)) return code;
      shared.status = code;
      std::memcpy(shared.text, text, sizeof(text));
      return code;
    };
    const int32_t status = host_->parallel_for(host_->context, 0, count, grain, run, &loop);
    if (loop.status != GANNET_OK) throw Failure(static_cast<gannet_status>(loop.status), loop.text);
    if (status != GANNET_OK) throw Failure(static_cast<gannet_status>(status), "the host's parallel loop could not be run");
  }

 private:
  const gannet_host* host_;
};

}  // namespace gannet::sdk
