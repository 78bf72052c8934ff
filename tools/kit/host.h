// The host that the kit is to plugins: the core's own table (interfaces/host.h), and one whose services fail on request.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interfaces/host.h"

namespace gannet::kit {

// What a plugin has logged since the last call, a line each; the kit prints none of it.
std::vector<std::string> take_log();
void capture_log();

// Services of a host that fails. They belong to the process: one FailingHost at a time.
class FailingHost {
 public:
  enum class Service { kAllocate, kParallelFor, kCollective };
  // Every call of that service fails from now on.
  explicit FailingHost(Service service);
  const gannet_host* table() const { return &table_; }
  Host& host() { return host_; }
  uint64_t failures() const;  // that it has given

 private:
  Host host_;
  gannet_host table_;
};

}  // namespace gannet::kit
