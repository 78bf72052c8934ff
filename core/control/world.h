// The world: the processes that train together, as the core sees them, with the store, the open
// plugins, the Comms and the group of all ranks. Programs see it as a ProcessGroup
// (gannet/distributed.h).
//
//   auto world = process_group->world();
//   world->agree("the plugins", list_of(world->registry().opened()));   // Error(kMismatch) on every rank if one differs
//   world->links().host.all_reduce(totals, 2);
#pragma once

#include <gannet/distributed.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "control/environment.h"
#include "control/store.h"
#include "control/watch.h"
#include "device/accelerator.h"
#include "interfaces/comm.h"
#include "interfaces/host.h"
#include "interfaces/host_group.h"
#include "plugin/plugin.h"

namespace gannet::control {

struct Patience;
class World;

// The communication among a group's ranks: host memory goes over the world's host Comm, device
// memory over the Comm that an engine opened for it. Every member constructs one.
struct Links {
  Links(World& world, const std::vector<uint32_t>& ranks, const std::string& name);
  // The group's CommGroup over this Comm. Every member must make the first call, which creates it.
  CommGroup& over(Comm& comm);
  CommGroup& device();  // the CommGroup over World::comm()
  HostGroup host;

 private:
  World& world_;
  std::map<Comm*, std::unique_ptr<CommGroup>> groups_;
};

// The device whose memory a Comm moves, for the Comm's rendezvous.
struct CommDevice {
  std::string accelerator;  // the plugin's name
  Dict params;              // the plugin's params
  uint32_t index = 0;
  std::string plugin_device = "";  // the device name of plugins for its memory; empty: the accelerator's name
};

class World {
 public:
  // Discovers the environment, meets the other ranks, opens the host Comm and connects the ranks.
  // Throws the errors of init_distributed.
  World(const DistributedOptions& options, uint32_t generation);
  ~World();
  World(const World&) = delete;

  uint32_t rank() const { return environment_.rank; }
  uint32_t size() const { return environment_.world_size; }
  uint32_t local_rank() const { return local_rank_; }
  const std::string& discovered() const { return environment_.discovered; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  Host& host() { return host_; }
  plugin::Registry& registry() { return registry_; }
  Comm& host_comm() { return *host_comm_; }
  // The first open Comm with the name comm_name(), which is the host's Comm or one that an engine
  // opened for a device. Throws Error(kOrder) if there is none yet.
  Comm& comm();
  const std::string& comm_name() const { return comm_name_; }
  bool comm_is_auto() const { return comm_is_auto_; }
  // A Comm for the memory of a device, which must be current. The first call opens it; later calls
  // with the same name and device return it. Does not connect the ranks; Links::over does. Throws
  // the plugins' errors, and Error(kConfig) if `params` differ from those that the Comm was opened
  // with.
  Comm& open_comm(const std::string& name, const Dict& params, const CommDevice& device);
  // The Comm plugin of this name for the device, or else one for another device (nccl is a name of
  // several vendors' plugins).
  const plugin::Plugin& require_comm(const std::string& name, const CommDevice& device);
  // Throws Error(kConfig) if a later init_distributed asks for something that this world cannot
  // provide. It provides its open Comms with the same params, and a device Comm that an engine may
  // still open.
  void require_same(const DistributedOptions& later);
  Links& links() { return *links_; }  // the links among all ranks
  // The number of a new engine among those of a group of ranks, equal on all of them. Each group has
  // its own counter, because a rank may have engines in several groups.
  uint32_t next_engine_in(const std::string& group);

  // Publishes this rank's text and compares it with every other rank's, line by line. All ranks
  // must call it in the same order. Throws on every rank: Error(kMismatch) with the ranks that
  // differ from rank 0 and the first line that differs, or Error(kTimeout) with the ranks that
  // never called.
  void agree(const std::string& what, const std::string& text);

  // Marks a collective call of the public API for the lifetime of the returned object: ranks that
  // are in another call, late or dead are named (watch.h). Throws if there is already a verdict.
  //   auto call = world->enter(links.host, "save_checkpoint", step, tag);
  Watch::Call enter(const HostGroup& group, const char* name, int64_t step = -1, const std::string& tag = "",
                    Watch::Call::Begin begin = Watch::Call::kTogether) {
    return Watch::Call(watch_.get(), group, name, step, tag, begin);
  }
  // Marks a per-step call, in which all ranks must have the same `facts`.
  Watch::Call enter(const HostGroup& group, const char* name, int64_t step, Facts& facts) {
    return Watch::Call(watch_.get(), group, name, step, "", Watch::Call::kAtOnce, &facts);
  }
  Watch::Call enter(const char* name, int64_t step = -1, const std::string& tag = "") {
    return enter(links_->host, name, step, tag);
  }
  // Sets how long a call may wait for another rank. Throws Error(kConfig) if the Comm's own
  // time-out is shorter.
  void set_deadline(double seconds);
  Watch* watch() { return watch_.get(); }  // null in a world of one

  // Says goodbye before an orderly end. Rank 0, which serves the store, waits a few seconds for the
  // other ranks to do the same.
  void leave() noexcept;
  // Notifies the other ranks of an orderly end. Used at an exit without leave().
  void goodbye() noexcept {
    if (watch_) watch_->goodbye();
  }

 private:
  struct OpenedComm {
    std::string key;                           // the names of the plugin and its device
    Dict params;                               // the params that the Comm was opened with
    std::unique_ptr<Accelerator> accelerator;  // null: for host memory
    std::unique_ptr<Comm> comm;
  };
  // Parts of the constructor, in this order.
  void meet_others(const Variables& variables, uint32_t generation);
  void watch_others(const DistributedOptions& options);
  void open_host_comms(const DistributedOptions& options);
  Comm& open(const plugin::Plugin& plugin, const Dict& params, const CommDevice* device);
  void agree(const std::string& what, const std::string& text, const Patience& patience);
  Environment environment_;
  std::chrono::milliseconds timeout_;
  uint32_t local_rank_ = 0;
  // The number of calls of agree() so far, which is part of their keys in the store. It is equal on
  // all ranks, because they make the calls in the same order.
  uint32_t agreements_ = 0;
  std::map<std::string, uint32_t> engines_;  // of each group so far
  Host host_;
  plugin::Registry registry_;
  std::unique_ptr<Store> store_;  // null in a world of one; outlives the Comm, since its plugin holds the store's table
  std::string comm_name_;         // from the options, or resolved from "auto"
  Dict comm_params_;              // the params of the Comm with that name
  bool comm_is_auto_ = false;
  std::vector<std::string> hosts_;  // of all ranks, until the watch has them; empty if there is one
  std::string host_address_;        // the address at which other ranks reach this host; "": unknown
  gannet_rendezvous rendezvous_{};
  std::optional<int> mpi_communicator_;  // the program's; the Comms point to it
  std::mutex comms_mutex_;               // guards engines_ and comms_, whose elements the watch's thread aborts
  std::deque<OpenedComm> comms_;
  Comm* host_comm_ = nullptr;  // one of comms_
  std::unique_ptr<Links> links_;
  std::unique_ptr<Watch> watch_;  // null in a world of one; destroyed before the Comms that it aborts
  std::shared_ptr<void> guard_;   // detaches the store before the watch is destroyed, even if the constructor fails
};

// Like World::agree(), within a group and over the Comm: compares hashes first, and the texts only
// if the hashes differ.
void agree(HostGroup& group, const std::string& what, const std::string& text);

// The outcome of a comparison: "" if all texts are equal, else the message. texts[0] is the
// reference.
std::string disagreement(const std::string& what, const std::vector<std::string>& texts);

// Lists the plugins, one per line: "optimizer adam@cpu 0.1.0 <hash>".
std::string list_of(const std::vector<const plugin::Plugin*>& plugins);

}  // namespace gannet::control
