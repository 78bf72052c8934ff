// Comm plugin "gloo": collectives on host memory over TCP, by c10d's ProcessGroupGloo. Here is the table of the contract;
// group.cpp talks to c10d, wire.h counts the bytes.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <gannet/sdk.hpp>
#include <mutex>
#include <set>
#include <string>

#include "group.h"
#include "wire.h"

namespace {

using gannet::sdk::Failure;
using gannet::sdk::guarded;
using gannet_gloo::Group;
using gannet_gloo::Work;

constexpr gannet_param_spec kParams[] = {
    gannet::sdk::text("interface", nullptr, nullptr,
                      "network interface to use, as 'eth0'; default: the one that leads to MASTER_ADDR"),
};

struct Member {
  std::unique_ptr<Group> group;
  uint32_t rank, size;
};

struct Gloo {
  uint32_t rank, world_size;
  gannet_gloo::GroupOptions defaults;
  std::atomic<uint64_t> calls{0}, bytes_sent{0}, bytes_received{0};
  std::atomic<bool> left_pending{false};  // a work timed out and may still be in flight
  std::mutex mutex;
  std::set<Member*> members;  // guarded by mutex

  void abort() {
    std::lock_guard lock(mutex);
    for (auto* member : members) member->group->abort();
  }
};

int32_t create(const gannet_host*, const gannet_params* params, const gannet_rendezvous* rendezvous, void** self,
               gannet_error* error) {
  return guarded(error, [&] {
    const gannet::sdk::Params given(*params);
    if (rendezvous->world_size > 1 && !rendezvous->store)
      throw Failure(GANNET_INVALID_ARGUMENT,
                    "comm plugin 'gloo' needs a store to connect " + std::to_string(rendezvous->world_size) + " ranks");
    auto gloo = std::make_unique<Gloo>();
    gloo->rank = rendezvous->rank;
    gloo->world_size = rendezvous->world_size;
    gloo->defaults.timeout_ms = rendezvous->timeout_ms;
    if (rendezvous->store) gloo->defaults.store = *rendezvous->store;
    if (rendezvous->host_address) gloo->defaults.address = rendezvous->host_address;
    if (given.has("interface"))
      gloo->defaults.interface = given.text("interface");
    else if (const char* named = std::getenv("GLOO_SOCKET_IFNAME"))  // as PyTorch users know it
      gloo->defaults.interface = named;
    *self = gloo.release();
  });
}

void destroy(void* self) {
  auto* gloo = static_cast<Gloo*>(self);
  if (gloo->left_pending) gloo->abort();
  for (auto* member : gloo->members) delete member;
  delete gloo;
}

int32_t group_create(void* self, const uint32_t* ranks, uint32_t count, const char* name, void* external, void** group,
                     gannet_error* error) {
  return guarded(error, [&] {
    auto& gloo = *static_cast<Gloo*>(self);
    if (external) throw Failure(GANNET_UNSUPPORTED, "comm plugin 'gloo' takes no communicator from outside");
    const uint32_t* mine = std::find(ranks, ranks + count, gloo.rank);
    if (mine == ranks + count)
      throw Failure(GANNET_INVALID_ARGUMENT, "rank " + std::to_string(gloo.rank) + " is not a member of group '" + name + "'");
    for (uint32_t i = 0; i < count; ++i)
      if (ranks[i] >= gloo.world_size || std::find(ranks, ranks + i, ranks[i]) != ranks + i)
        throw Failure(GANNET_INVALID_ARGUMENT, "group '" + std::string(name) + "' names rank " + std::to_string(ranks[i]) +
                                                   (ranks[i] >= gloo.world_size ? ", which the world does not have" : " twice"));
    auto options = gloo.defaults;
    options.name = name;
    options.rank = static_cast<uint32_t>(mine - ranks);
    options.size = count;
    auto member = std::make_unique<Member>(Member{gannet_gloo::make_group(options), options.rank, count});
    std::lock_guard lock(gloo.mutex);
    gloo.members.insert(member.get());
    *group = member.release();
  });
}

void group_destroy(void* self, void* group) {
  auto& gloo = *static_cast<Gloo*>(self);
  auto* member = static_cast<Member*>(group);
  {
    std::lock_guard lock(gloo.mutex);
    gloo.members.erase(member);
  }
  if (gloo.left_pending) member->group->abort();  // else the destructor would wait for what no rank will answer
  delete member;
}

int32_t collective(void* self, void* group, const gannet_collective_args* args, void** work, gannet_error* error) {
  return guarded(error, [&] {
    auto& gloo = *static_cast<Gloo*>(self);
    auto& member = *static_cast<Member*>(group);
    *work = member.group->start(*args).release();
    const uint64_t payload = args->op == GANNET_BARRIER ? 0 : args->count * gannet_gloo::bytes_of(args->dtype);
    const auto moved =
        gannet_gloo::traffic(static_cast<gannet_collective>(args->op), payload, member.rank, member.size, args->root);
    gloo.calls.fetch_add(1, std::memory_order_relaxed);
    gloo.bytes_sent.fetch_add(moved.sent, std::memory_order_relaxed);
    gloo.bytes_received.fetch_add(moved.received, std::memory_order_relaxed);
  });
}

int32_t work_wait(void* self, void* work, uint64_t timeout_ms, gannet_error* error) {
  return guarded(error, [&] {
    if (static_cast<Work*>(work)->wait(timeout_ms)) return;
    static_cast<Gloo*>(self)->left_pending = true;
    throw Failure(GANNET_TIMEOUT, "a collective did not complete in " + std::to_string(timeout_ms) +
                                      " ms: a rank is late, or the ranks call different collectives");
  });
}

void counters(void* self, gannet_comm_counters* counters) {
  auto& gloo = *static_cast<Gloo*>(self);
  counters->calls = gloo.calls.load(std::memory_order_relaxed);
  counters->bytes_sent = gloo.bytes_sent.load(std::memory_order_relaxed);
  counters->bytes_received = gloo.bytes_received.load(std::memory_order_relaxed);
}

constexpr gannet_comm_api kApi = [] {
  gannet_comm_api api{};
  api.struct_size = sizeof(api);
  api.version = GANNET_VOLATILE_VERSION;
  api.create = create;
  api.destroy = destroy;
  api.group_create = group_create;
  api.group_destroy = group_destroy;
  api.collective = collective;
  api.work_wait = work_wait;
  api.work_free = [](void*, void* work) { delete static_cast<Work*>(work); };
  api.abort = [](void* self) { static_cast<Gloo*>(self)->abort(); };
  api.counters = counters;
  return api;
}();

}  // namespace

GANNET_PLUGINS("comm/gloo@cpu", GANNET_TIER_PINNED,
               gannet::sdk::describe(GANNET_KIND_COMM, GANNET_TIER_PINNED, "gloo", "cpu", "0.1.0", GANNET_FINGERPRINT,
                                     "TCP on any machine, by LibTorch's Gloo", kParams, 1, &kApi))
