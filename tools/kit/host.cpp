#include "kit/host.h"

#include <gannet/log.h>

#include <atomic>
#include <gannet/sdk_errors.hpp>
#include <mutex>

namespace gannet::kit {
namespace {

std::mutex& host_mutex = *new std::mutex;
std::vector<std::string>& lines = *new std::vector<std::string>;
std::atomic<uint64_t> given{0};

}  // namespace

void capture_log() {
  set_log_level(LogLevel::kDebug);
  set_log_sink([](LogLevel, const std::string& line) {
    const std::lock_guard lock(host_mutex);
    if (lines.size() < 100) lines.push_back(line);
  });
}

std::vector<std::string> take_log() {
  const std::lock_guard lock(host_mutex);
  return std::exchange(lines, {});
}

FailingHost::FailingHost(Service service) : table_(*host_.table()) {
  given = 0;
  switch (service) {
    case Service::kAllocate:
      table_.allocate = [](void*, uint64_t, uint64_t) -> void* {
        ++given;
        return nullptr;
      };
      return;
    case Service::kParallelFor:
      table_.parallel_for = [](void*, uint64_t, uint64_t, uint64_t, gannet_loop_body, void*) -> int32_t {
        ++given;
        return GANNET_INTERNAL;
      };
      return;
    case Service::kCollective:
      table_.collective = [](void*, const gannet_host_collective*, gannet_error* error) -> int32_t {
        ++given;
        return sdk::report(error, GANNET_PEER_LOST, "rank 1 has died (the conformance kit made this failure)");
      };
  }
}

uint64_t FailingHost::failures() const { return given; }

}  // namespace gannet::kit
