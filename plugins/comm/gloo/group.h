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
  std::string name;   // unique among the groups of the world; also the prefix of the group's store keys
  uint32_t rank = 0;  // the number of this rank in the group
  uint32_t size = 1;
  std::string address;      // to bind to; "" lets Gloo resolve the host's name
  std::string interface;    // a network interface by name, "" for none; takes precedence over address
  uint64_t timeout_ms = 0;  // for connecting and for each collective
  gannet_store store{};
};

// A collective that is in flight.
class Work {
 public:
  virtual ~Work() = default;
  // Returns whether the collective completed within timeout_ms. Throws sdk::Failure if it failed.
  virtual bool wait(uint64_t timeout_ms) = 0;
  virtual bool is_over() = 0;
};

class Group {
 public:
  virtual ~Group() = default;
  virtual std::unique_ptr<Work> start(const Collective& collective) = 0;
  // All SENDs and RECVs of a batch share one Work; every other collective has its own.
  virtual std::vector<std::unique_ptr<Work>> start_many(const std::vector<Collective>& batch) = 0;
  // Closes the connections. Peers notice immediately, this rank's buffers are no longer written to,
  // and every Work fails.
  virtual void abort() = 0;
};

// Connects the ranks; throws sdk::Failure. A group of one rank has no connections and only copies.
std::unique_ptr<Group> make_group(const GroupOptions& options);

}  // namespace gannet_gloo
