// A group of ranks over c10d's ProcessGroupGloo.
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <gannet/sdk_comm.hpp>
#include <memory>
#include <string>
#include <vector>

namespace gannet_gloo {

using gannet::sdk::Collective;

struct GroupOptions {
  std::string name;   // unique among the groups of the world; also the prefix of its keys
  uint32_t rank = 0;  // in the group
  uint32_t size = 1;
  std::string address;      // to bind to; "" lets Gloo resolve the host's name
  std::string interface;    // a network interface by name, "" for none; goes before address
  uint64_t timeout_ms = 0;  // of the connections and of each collective
  gannet_store store{};
};

// A collective in flight.
class Work {
 public:
  virtual ~Work() = default;
  // Whether it completed within timeout_ms; throws sdk::Failure when it completed with an error.
  virtual bool wait(uint64_t timeout_ms) = 0;
  virtual bool is_over() = 0;
};

class Group {
 public:
  virtual ~Group() = default;
  virtual std::unique_ptr<Work> start(const Collective& collective) = 0;
  // SENDs and RECVs of a batch are one work; what else is in it has one each.
  virtual std::vector<std::unique_ptr<Work>> start_many(const std::vector<Collective>& batch) = 0;
  // Closes the connections: peers see it at once, nothing is written to this rank's buffers any more, and every Work fails.
  virtual void abort() = 0;
};

// Connects the ranks; throws sdk::Failure. A group of one has no connection and copies.
std::unique_ptr<Group> make_group(const GroupOptions& options);

}  // namespace gannet_gloo
