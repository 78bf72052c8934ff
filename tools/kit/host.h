// The hosts that the kit gives to plugins: the core's own table (interfaces/host.h), and one with
// services that fail on request.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interfaces/host.h"

namespace gannet::kit {

// Up to 100 lines that plugins have logged since the last call; the kit does not print them.
std::vector<std::string> take_log();
void capture_log();

// A host with a failing service. The services belong to the process: use one FailingHost at a time.
class FailingHost {
 public:
  enum class Service { kAllocate, kParallelFor, kCollective };
  // Every call of that service fails from here on.
  explicit FailingHost(Service service);
  const gannet_host* table() const { return &table_; }
  Host& host() { return host_; }
  uint64_t failures() const;  // how many calls have failed

 private:
  Host host_;
  gannet_host table_;
};

}  // namespace gannet::kit
