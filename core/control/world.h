// The processes that train together, as the core sees them: the store, the plugins that are open, the Comm and its group of
// all ranks. A program sees it as a ProcessGroup (gannet/distributed.h).
//
//   auto world = ProcessGroup...->world();
//   world->agree("the plugins", list_of(world->registry().opened()));   // Error(kMismatch) on every rank when one differs
//   world->links().host.all_reduce(totals, 2);
#pragma once

#include <gannet/distributed.h>

#include <memory>
#include <string>
#include <vector>

#include "control/environment.h"
#include "control/store.h"
#include "control/watch.h"
#include "interfaces/comm.h"
#include "interfaces/host.h"
#include "interfaces/host_group.h"
#include "plugin/plugin.h"

namespace gannet::control {

struct Patience;
class World;

// How the ranks of a group reach one another: the device's memory by the Comm that the config names, the host's by one that
// serves host memory. Called by every member.
struct Links {
  Links(World& world, const std::vector<uint32_t>& ranks, const std::string& name);
  CommGroup device;
  HostGroup host;
};

class World {
 public:
  // Discovers, meets the other ranks, opens the Comm plugin and connects. Errors as init_distributed.
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
  Comm& comm() { return *comm_; }
  Comm& host_comm() { return host_comm_ ? *host_comm_ : *comm_; }
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
  void agree(const std::string& what, const std::string& text, const Patience& patience);
  Environment environment_;
  std::chrono::milliseconds timeout_;
  uint32_t local_rank_ = 0;
  // Calls of agree() so far. A part of the store's key, equal on all ranks because they call it in the same order.
  uint32_t agreements_ = 0;
  Host host_;
  plugin::Registry registry_;
  std::unique_ptr<Store> store_;            // null in a world of one; outlives the Comm, whose plugin holds its table
  std::unique_ptr<Comm> comm_, host_comm_;  // the second null: the first serves host memory too
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
