#include "probe_comm.h"

namespace gannet_test {
namespace {

using gannet::sdk::report;

struct Fake {
  const gannet_host* host;
  std::string fate;
  uint64_t started = 0, freed = 0, waits = 0, blocks = 0, aborts = 0;
};

Fake& fake(void* self) { return *static_cast<Fake*>(self); }

int32_t create(const gannet_host* host, const gannet_params* params, const gannet_rendezvous*, void** self, gannet_error* error) {
  return gannet::sdk::guarded(error, [&] { *self = new Fake{host, gannet::sdk::Params(*params).text("fate")}; });
}

// Its observations go to the host's log, where the test reads them.
void destroy(void* self) {
  auto& seen = fake(self);
  const std::string text = "probe comm: started " + std::to_string(seen.started) + ", waits " + std::to_string(seen.waits) +
                           (seen.blocks ? ", blocks " + std::to_string(seen.blocks) : "") + ", aborts " +
                           std::to_string(seen.aborts) + ", freed " + std::to_string(seen.freed);
  seen.host->log(seen.host->context, GANNET_LOG_INFO, text.c_str());
  delete &seen;
}

int32_t group_create(void*, const uint32_t*, uint32_t, const char* name, void*, void** group, gannet_error*) {
  *group = new std::string(name);
  return GANNET_OK;
}
void group_destroy(void*, void* group) { delete static_cast<std::string*>(group); }

int32_t collective(void* self, void*, const gannet_collective_args* args, void** work, gannet_error* error) {
  if (args->op == GANNET_ALL_TO_ALL) return report(error, GANNET_UNSUPPORTED, "it has no all_to_all");
  ++fake(self).started;
  *work = self;
  return GANNET_OK;
}

int32_t work_wait(void* self, void*, uint64_t, gannet_error* error) {
  ++fake(self).waits;
  if (fake(self).fate == "late") return report(error, GANNET_TIMEOUT, "rank 1 did not come");
  if (fake(self).fate == "lost") return report(error, GANNET_PEER_LOST, "rank 1 closed its connection");
  return GANNET_OK;
}
int32_t collective_many(void* self, void*, const gannet_collective_args*, uint64_t count, uint64_t, void** work, gannet_error*) {
  fake(self).started += count;
  *work = self;
  return GANNET_OK;
}
int32_t work_query(void* self, void*, int32_t* is_over, gannet_error*) {
  *is_over = fake(self).fate == "done";
  return GANNET_OK;
}
int32_t work_block(void* self, void*, void*, gannet_error*) {
  ++fake(self).blocks;
  return GANNET_OK;
}
void work_free(void* self, void*) { ++fake(self).freed; }
void abort(void* self) { ++fake(self).aborts; }
void counters(void* self, gannet_comm_counters* out) { out->calls = fake(self).started; }

}  // namespace

const gannet_comm_api kCommApi = {sizeof(gannet_comm_api),
                                  GANNET_COMM_VERSION,
                                  create,
                                  destroy,
                                  group_create,
                                  group_destroy,
                                  collective,
                                  collective_many,
                                  work_wait,
                                  work_query,
                                  work_block,
                                  work_free,
                                  abort,
                                  counters,
                                  [](void*, uint32_t dtype) { return dtype; },
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  nullptr};

}  // namespace gannet_test
