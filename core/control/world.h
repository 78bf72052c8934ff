// The processes that train together, as the core sees them: the store, the plugins that are open, the Comms and the group of all
// ranks. A program sees it as a ProcessGroup (gannet/distributed.h).
//
//   auto world = ProcessGroup...->world();
//   world->agree("the plugins", list_of(world->registry().opened()));   // Error(kMismatch) on every rank when one differs
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

// How the ranks of a group reach one another: the host's memory by the world's Comm for it, a device's by the Comm that an engine
// opened there. Called by every member.
struct Links {
  Links(World& world, const std::vector<uint32_t>& ranks, const std::string& name);
  // Their group over this Comm. The first call with it makes the group, on every member.
  CommGroup& over(Comm& comm);
  CommGroup& device();  // over World::comm()
  HostGroup host;

 private:
  World& world_;
  std::map<Comm*, std::unique_ptr<CommGroup>> groups_;
};

// The device whose memory a Comm moves, for its rendezvous.
struct CommDevice {
  std::string accelerator;  // the plugin's name
  Dict params;              // and its own
  uint32_t index = 0;
};

class World {
 public:
  // Discovers, meets the other ranks, opens the Comm for the host's memory and connects. Errors as init_distributed.
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
  // The Comm that the options named, or meant by "auto": the host's, or the device's that was opened first under that name.
  Comm& comm();
  const std::string& comm_name() const { return comm_name_; }
  bool comm_is_auto() const { return comm_is_auto_; }
  // A Comm for the memory of a device, which is current. The first call opens it; others with the same name and device get the
  // same one. Connects nobody: Links::over does. Throws what the plugins do, Error(kConfig) on params that the Comm was not
  // opened with.
  Comm& open_comm(const std::string& name, const Dict& params, const CommDevice& device);
  // Error(kConfig) unless a later init_distributed asks for what this world has: the Comms that it opened, with these params, or
  // one for a device that an engine may still open.
  void require_same(const DistributedOptions& later);
  Links& links() { return *links_; }  // of all ranks

  // Publishes this rank's text and compares it with every other's, line by line. Called by all ranks, in the same order.
  // Throws on every rank: Error(kMismatch) that names the ranks whose text differs from rank 0's and the first line that does,
  // Error(kTimeout) that names the ranks that never asked.
  void agree(const std::string& what, const std::string& text);

  // A collective call of the public API, from here to the end of the returned object's life: ranks that are elsewhere, late or
  // dead are named (watch.h). Throws at once what was found before.
  //   auto call = world->enter(links.host, "save_checkpoint", step, tag);
  Watch::Call enter(const HostGroup& group, const char* name, int64_t step = -1, const std::string& tag = "",
                    Watch::Call::Begin begin = Watch::Call::kTogether) {
    return Watch::Call(watch_.get(), group, name, step, tag, begin);
  }
  // A call of every step, in which all ranks must have the same `facts`.
  Watch::Call enter(const HostGroup& group, const char* name, int64_t step, Facts& facts) {
    return Watch::Call(watch_.get(), group, name, step, "", Watch::Call::kAtOnce, &facts);
  }
  Watch::Call enter(const char* name, int64_t step = -1, const std::string& tag = "") {
    return enter(links_->host, name, step, tag);
  }
  // How long a call may wait for another rank. Error(kConfig) when the Comm was made to give up earlier.
  void set_deadline(double seconds);
  Watch* watch() { return watch_.get(); }  // null in a world of one

  // Says goodbye: rank 0, who serves the store, waits some seconds for the others to do so. Called before an orderly end.
  void leave() noexcept;
  // Tells the other ranks that this process ends as it should. At an exit without leave().
  void goodbye() noexcept {
    if (watch_) watch_->goodbye();
  }

 private:
  struct Opened {
    std::string key;                           // the plugin's name, and its device's
    Dict params;                               // as they were given
    std::unique_ptr<Accelerator> accelerator;  // null: of the host's memory
    std::unique_ptr<Comm> comm;
  };
  Comm& open(const std::string& name, const Dict& params, const CommDevice* device);
  void agree(const std::string& what, const std::string& text, const Patience& patience);
  Environment environment_;
  std::chrono::milliseconds timeout_;
  uint32_t local_rank_ = 0;
  // Calls of agree() so far. A part of the store's key, equal on all ranks because they call it in the same order.
  uint32_t agreements_ = 0;
  Host host_;
  plugin::Registry registry_;
  std::unique_ptr<Store> store_;  // null in a world of one; outlives the Comm, whose plugin holds its table
  std::string comm_name_;         // as the options say, or as "auto" means
  Dict comm_params_;              // of the Comm of that name
  bool comm_is_auto_ = false;
  std::string host_address_;  // by which other ranks reach this host; "": find out
  gannet_rendezvous rendezvous_{};
  std::mutex comms_mutex_;  // of comms_: the watch's thread aborts them
  std::deque<Opened> comms_;
  Comm* host_comm_ = nullptr;  // one of them
  std::unique_ptr<Links> links_;
  std::unique_ptr<Watch> watch_;  // null in a world of one; ends before the Comms that it aborts
  std::shared_ptr<void> guard_;   // takes the watch out of the store before it ends, when the constructor fails too
};

// The same among the ranks of a group, over the Comm: hashes first, the texts only where these differ.
void agree(HostGroup& group, const std::string& what, const std::string& text);

// What agree() finds: "" when all texts are the same, else the sentence. texts[0] is the one to compare with.
std::string disagreement(const std::string& what, const std::vector<std::string>& texts);

// A line per plugin: "optimizer adam@cpu 0.1.0 <hash>".
std::string list_of(const std::vector<const plugin::Plugin*>& plugins);

}  // namespace gannet::control
