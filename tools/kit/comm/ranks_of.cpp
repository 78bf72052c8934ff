#include "kit/comm/ranks_of.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/format.h"
#include "kit/comm/device.h"
#include "kit/comm/launched.h"

namespace gannet::kit {
namespace {

// Whether a world of `size` ranks can be created; all ranks must agree.
bool serves(const Subject& subject, uint32_t size) {
  struct WorldCounts {
    int32_t made, refused;
  };
  void* memory = ::mmap(nullptr, sizeof(WorldCounts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Error(ErrorCode::kOutOfMemory, "no memory to share between the ranks of a check");
  auto& counts = *new (memory) WorldCounts{};
  run_world(size, "create", [&](uint32_t rank, const gannet_store& store) {
    CallOutcome outcome;
    const Peer peer(subject, rank, size, &store, WorldOptions().timeout, outcome);
    if (outcome.ok())
      __atomic_fetch_add(&counts.made, 1, __ATOMIC_SEQ_CST);
    else if (outcome.status == GANNET_UNSUPPORTED)
      __atomic_fetch_add(&counts.refused, 1, __ATOMIC_SEQ_CST);
    else
      require_ok("create", outcome);
  });
  const WorldCounts found = counts;
  ::munmap(memory, sizeof(WorldCounts));
  if (found.made > 0 && found.refused > 0)
    throw CheckFailure(formatted("create succeeds on {} rank(s) and returns GANNET_UNSUPPORTED on {}", found.made, found.refused),
                       formatted("{} ranks", size), "every rank of a world says the same",
                       "judge by what all ranks know: world_size, not the rank");
  return found.made > 0;
}

}  // namespace

void require_host_memory(const Subject& subject) {
  const std::string device = subject.plugin->device();
  if (works_on_host(*subject.plugin) || has_device_of_host_memory()) return;
  throw SkippedCheck(
      formatted("it moves the memory of {}, and the kit has the host's alone (--accelerator: the file of a device "
                "that is made of it)",
                printable(device)));
}

std::vector<uint32_t> sizes_of(const Subject& subject) {
  require_host_memory(subject);
  if (launched()) return {launched()->size};
  std::vector<uint32_t> sizes;
  for (uint32_t size = 1; size <= kMostRanks; ++size)
    if (serves(subject, size)) sizes.push_back(size);
  if (sizes.empty())
    throw CheckFailure("create refuses worlds of 1, 2, 3 and 4 ranks", "create", "it serves a world of some size");
  return sizes;
}

void on_every_world(const Subject& subject, uint32_t least, const std::string& what, const std::function<void(Peer&)>& body) {
  bool is_any = false;
  for (const uint32_t size : sizes_of(subject)) {
    if (size < least) continue;
    is_any = true;
    on_ranks(subject, size, what, body);
  }
  if (!is_any) throw SkippedCheck(formatted("it serves no world of {} ranks or more", least));
}

void on_ranks(const Subject& subject, uint32_t size, const std::string& what, const std::function<void(Peer&)>& body,
              const WorldOptions& options) {
  require_host_memory(subject);
  if (!launched() && !serves(subject, size)) throw SkippedCheck(formatted("it serves no world of {} ranks", size));
  run_world(
      size, what,
      [&](uint32_t rank, const gannet_store& store) {
        CallOutcome outcome;
        Peer peer(subject, rank, size, &store, options.timeout, outcome);
        require_ok("create", outcome);
        body(peer);
      },
      options);
}

}  // namespace gannet::kit
