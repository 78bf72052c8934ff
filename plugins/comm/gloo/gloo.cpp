// Comm plugin "gloo": collectives on host memory over TCP, using c10d's ProcessGroupGloo. This file
// holds the plugin's table; group.cpp calls c10d, and wire.h counts the bytes.
#include <atomic>
#include <cstdlib>
#include <gannet/sdk_comm.hpp>
#include <mutex>
#include <set>
#include <string>

#include "group.h"
#include "wire.h"

namespace {

using gannet::sdk::Collective;
using gannet::sdk::Failure;

// The set of open groups, which abort() needs from another thread. It outlives the groups.
struct OpenGroups {
  std::mutex mutex;
  std::set<gannet_gloo::Group*> all;
  std::atomic<bool> left_pending{false};  // whether a Work timed out and may still be in flight

  void abort() {
    const std::lock_guard lock(mutex);
    for (auto* group : all) group->abort();
  }
};

class Gloo : public gannet::sdk::CommBase {
 public:
  struct Group {
    Group(OpenGroups& all, std::unique_ptr<gannet_gloo::Group> made) : groups(all), group(std::move(made)) {
      const std::lock_guard lock(groups.mutex);
      groups.all.insert(group.get());
    }
    ~Group() {
      {
        const std::lock_guard lock(groups.mutex);
        groups.all.erase(group.get());
      }
      if (groups.left_pending) group->abort();  // otherwise the destructor would wait for messages that never arrive
    }
    OpenGroups& groups;
    std::unique_ptr<gannet_gloo::Group> group;
  };
  struct Work {
    bool wait(uint64_t timeout_ms) {
      const bool is_over = work->wait(timeout_ms);
      if (!is_over) groups.left_pending = true;
      return is_over;
    }
    bool is_over() { return work->is_over(); }
    OpenGroups& groups;
    std::unique_ptr<gannet_gloo::Work> work;
  };
  static constexpr gannet_param_spec kParams[] = {
      gannet::sdk::text("interface", nullptr, nullptr,
                        "network interface to use, as 'eth0'; default: the one that leads to MASTER_ADDR"),
  };

  Gloo(const gannet_host& host, const gannet::sdk::Params& given, const gannet_rendezvous& rendezvous)
      : CommBase(host, given, rendezvous) {
    if (rendezvous.world_size > 1 && !rendezvous.store)
      throw Failure(GANNET_INVALID_ARGUMENT,
                    "comm plugin 'gloo' needs a store to connect " + std::to_string(rendezvous.world_size) + " ranks");
    defaults_.timeout_ms = rendezvous.timeout_ms;
    if (rendezvous.store) defaults_.store = *rendezvous.store;
    if (rendezvous.host_address) defaults_.address = rendezvous.host_address;
    if (given.has("interface"))
      defaults_.interface = given.text("interface");
    else if (const char* named = std::getenv("GLOO_SOCKET_IFNAME"))  // the same variable as in PyTorch
      defaults_.interface = named;
  }

  std::unique_ptr<Group> make_group(const std::vector<uint32_t>& ranks, uint32_t rank, const std::string& name) {
    auto options = defaults_;
    options.name = name;
    options.rank = rank;
    options.size = static_cast<uint32_t>(ranks.size());
    return std::make_unique<Group>(groups_, gannet_gloo::make_group(options));
  }
  std::unique_ptr<Work> start(Group& group, const Collective& collective) {
    auto work = group.group->start(collective);
    count(collective);
    return std::make_unique<Work>(Work{groups_, std::move(work)});
  }
  std::vector<std::unique_ptr<Work>> start_many(Group& group, const std::vector<Collective>& batch) {
    std::vector<std::unique_ptr<Work>> works;
    for (auto& work : group.group->start_many(batch)) works.push_back(std::make_unique<Work>(Work{groups_, std::move(work)}));
    for (const auto& collective : batch) count(collective);
    return works;
  }
  void abort() { groups_.abort(); }

 private:
  void count(const Collective& collective) {
    const auto moved = gannet_gloo::traffic(collective);
    count_traffic(moved.sent, moved.received);
  }

  gannet_gloo::GroupOptions defaults_;
  OpenGroups groups_;
};

}  // namespace

GANNET_PLUGINS("comm/gloo@cpu", GANNET_TIER_PINNED,
               gannet::sdk::comm<Gloo>("gloo", "cpu", GANNET_TIER_PINNED, GANNET_FINGERPRINT, "0.2.0",
                                       "TCP on any machine, by LibTorch's Gloo"))
