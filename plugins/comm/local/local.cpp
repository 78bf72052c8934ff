// Comm plugin "local": a world of one process. Every collective is a copy from send to recv, or nothing when they are the
// same buffer; it is complete when the call returns, and no byte ever reaches a wire.
#include <atomic>
#include <cstring>
#include <gannet/sdk.hpp>
#include <string>

namespace {

using gannet::sdk::Failure;
using gannet::sdk::guarded;

struct Local {
  std::atomic<uint64_t> calls{0};
};

uint64_t bytes_of(uint32_t dtype) {
  switch (dtype) {
    case GANNET_FLOAT64:
    case GANNET_INT64:
      return 8;
    case GANNET_FLOAT32:
    case GANNET_INT32:
      return 4;
    case GANNET_FLOAT16:
    case GANNET_BFLOAT16:
    case GANNET_INT16:
      return 2;
    case GANNET_INT8:
    case GANNET_UINT8:
    case GANNET_BOOL:
      return 1;
    default:
      throw Failure(GANNET_INVALID_ARGUMENT, "dtype " + std::to_string(dtype) + " is not one of gannet_dtype");
  }
}

// A work must not be null: null would mean "nothing was started".
int kFinished;

int32_t create(const gannet_host*, const gannet_params*, const gannet_rendezvous* rendezvous, void** self, gannet_error* error) {
  return guarded(error, [&] {
    if (rendezvous->world_size != 1)
      throw Failure(GANNET_UNSUPPORTED, "comm plugin 'local' serves one process, and this world has " +
                                            std::to_string(rendezvous->world_size) + ": name another one, as 'gloo'");
    *self = new Local;
  });
}

int32_t group_create(void*, const uint32_t* ranks, uint32_t count, const char*, void* external, void** group,
                     gannet_error* error) {
  return guarded(error, [&] {
    if (external) throw Failure(GANNET_UNSUPPORTED, "comm plugin 'local' takes no communicator from outside");
    if (count != 1 || ranks[0] != 0) throw Failure(GANNET_INVALID_ARGUMENT, "the only group of one process is {0}");
    *group = &kFinished;
  });
}

int32_t collective(void* self, void*, const gannet_collective_args* args, void** work, gannet_error* error) {
  return guarded(error, [&] {
    if (args->op < GANNET_ALL_REDUCE || args->op > GANNET_BARRIER)
      throw Failure(GANNET_INVALID_ARGUMENT, "operation " + std::to_string(args->op) + " is not one of gannet_collective");
    // A broadcast has its data in recv already.
    const bool copies = args->op != GANNET_BARRIER && args->op != GANNET_BROADCAST;
    if (copies && args->count > 0 && args->send != args->recv)
      std::memmove(args->recv, args->send, args->count * bytes_of(args->dtype));
    static_cast<Local*>(self)->calls.fetch_add(1, std::memory_order_relaxed);
    *work = &kFinished;
  });
}

void counters(void* self, gannet_comm_counters* counters) {
  counters->calls = static_cast<Local*>(self)->calls.load(std::memory_order_relaxed);
  counters->bytes_sent = 0;
  counters->bytes_received = 0;
}

constexpr gannet_comm_api kApi = [] {
  gannet_comm_api api{};
  api.struct_size = sizeof(api);
  api.version = GANNET_VOLATILE_VERSION;
  api.create = create;
  api.destroy = [](void* self) { delete static_cast<Local*>(self); };
  api.group_create = group_create;
  api.group_destroy = [](void*, void*) {};
  api.collective = collective;
  api.work_wait = [](void*, void*, uint64_t, gannet_error*) -> int32_t { return GANNET_OK; };
  api.work_free = [](void*, void*) {};
  api.abort = [](void*) {};
  api.counters = counters;
  return api;
}();

}  // namespace

GANNET_PLUGINS("comm/local@cpu", GANNET_TIER_STABLE,
               gannet::sdk::describe(GANNET_KIND_COMM, GANNET_TIER_STABLE, "local", "cpu", "0.1.0", "",
                                     "one process: copies, no wire", nullptr, 0, &kApi))
