// The relay of the calls of a Comm and of an offload tier.
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "kit/relay_call.h"
#include "kit/relay_tables.h"

namespace gannet::kit {
namespace {

// The sizes of a Comm's groups, which are also the lengths of the lists of counts.
std::mutex& group_mutex = *new std::mutex;
std::map<void*, uint32_t>& group_sizes = *new std::map<void*, uint32_t>;

void reshape(CallMemory& memory, gannet_collective_args& args, void* group) {
  const std::lock_guard lock(group_mutex);
  const uint64_t size = group_sizes[group];
  args.send_counts = memory.values(args.send_counts, size, "gannet_collective_args::send_counts");
  args.recv_counts = memory.values(args.recv_counts, size, "gannet_collective_args::recv_counts");
}

int32_t create_comm(const gannet_host* host, const gannet_params* params, const gannet_rendezvous* rendezvous, void** self,
                    gannet_error* error) {
  using Through = CreateRelay<&gannet_comm_api::create>;
  if (!relay_options().reshapes()) return Through::call(host, params, rendezvous, self, error);
  // A Comm uses the store as long as it lives.
  static auto& stores = *new std::deque<CallMemory>;
  CallMemory memory = call_memory();
  gannet_rendezvous copy = *rendezvous;
  if (copy.store) {
    const std::lock_guard lock(group_mutex);
    stores.emplace_back(relay_options().minor, relay_options().appended_bytes);
    copy.store = stores.back().copied(copy.store, "gannet_store");
    stores.back().protect();
  }
  const gannet_rendezvous* const given = memory.copied(&copy, "gannet_rendezvous");
  memory.protect();
  return Through::call(host, params, given, self, error);
}

int32_t create_group(void* self, const uint32_t* ranks, uint32_t count, const char* name, void* external, void** group,
                     gannet_error* error) {
  const int32_t status = Relay<&gannet_comm_api::group_create>::call(self, ranks, count, name, external, group, error);
  if (status == GANNET_OK) {
    const std::lock_guard lock(group_mutex);
    group_sizes[*group] = count;
  }
  return status;
}

void destroy_group(void* self, void* group) {
  {
    const std::lock_guard lock(group_mutex);
    group_sizes.erase(group);
  }
  Relay<&gannet_comm_api::group_destroy>::call(self, group);
}

int32_t start_collective(void* self, void* group, const gannet_collective_args* args, void** work, gannet_error* error) {
  using Through = Relay<&gannet_comm_api::collective>;
  if (!relay_options().reshapes()) return Through::call(self, group, args, work, error);
  CallMemory memory = call_memory();
  gannet_collective_args copy = *args;
  reshape(memory, copy, group);
  const gannet_collective_args* const given = memory.copied(&copy, "gannet_collective_args");
  memory.protect();
  return Through::call(self, group, given, work, error);
}

int32_t start_collectives(void* self, void* group, const gannet_collective_args* args, uint64_t count, uint64_t stride,
                          void** work, gannet_error* error) {
  using Through = Relay<&gannet_comm_api::collective_many>;
  if (!relay_options().reshapes()) return Through::call(self, group, args, count, stride, work, error);
  CallMemory memory = call_memory();
  std::vector<gannet_collective_args> copies;
  for (uint64_t i = 0; i < count; ++i) {
    copies.push_back(*reinterpret_cast<const gannet_collective_args*>(reinterpret_cast<const char*>(args) + i * stride));
    reshape(memory, copies.back(), group);
  }
  const gannet_collective_args* const given = memory.list(copies.data(), count, sizeof(copies[0]), "gannet_collective_args");
  memory.protect();
  return Through::call(self, group, given, count, memory.stride_of<gannet_collective_args>(), work, error);
}

}  // namespace

const void* comm_table(const plugin::Plugin& plugin) {
  using Api = gannet_comm_api;
  static Api table = begun<Api>(plugin);
  table.create = create_comm;
  table.group_create = create_group;
  table.collective = start_collective;
  table.collective_many = start_collectives;
  table.group_destroy = destroy_group;
  GANNET_RELAY(Api, work_wait);
  GANNET_RELAY(Api, work_query);
  GANNET_RELAY(Api, work_block);
  GANNET_RELAY(Api, work_free);
  GANNET_RELAY(Api, counters);
  GANNET_RELAY(Api, sum_dtype);
  GANNET_RELAY(Api, allocate);
  GANNET_RELAY(Api, deallocate);
  GANNET_RELAY(Api, register_buffer);
  GANNET_RELAY(Api, unregister_buffer);
  return &table;
}

const void* offload_table(const plugin::Plugin& plugin) {
  using Api = gannet_offload_api;
  static Api table = begun<Api>(plugin);
  GANNET_RELAY(Api, alignment_bytes);
  GANNET_RELAY(Api, allocate);
  GANNET_RELAY(Api, release);
  GANNET_RELAY(Api, address);
  GANNET_RELAY(Api, read);
  GANNET_RELAY(Api, write);
  GANNET_RELAY(Api, work_wait);
  return &table;
}

}  // namespace gannet::kit
