#include "comm.h"

#include "memory.h"
#include "streams.h"

namespace gannet::accelerators::checked {

using sdk::Collective;

namespace {

void add_accesses(std::vector<Access>& accesses, const Collective& c) {
  const auto add = [&](const void* buffer, uint64_t count, bool writes) {
    const auto begin = reinterpret_cast<uint64_t>(buffer);
    if (buffer && count > 0) accesses.push_back({begin, begin + count * c.element_bytes(), writes});
  };
  const bool sends_parts = c.op == GANNET_REDUCE_SCATTER || c.op == GANNET_ALL_TO_ALL;
  const bool receives_parts = c.op == GANNET_ALL_GATHER || c.op == GANNET_ALL_TO_ALL;
  if (c.op == GANNET_BARRIER) return;
  if (c.op == GANNET_BROADCAST) return add(c.recv, c.count, c.rank != c.peer);
  if (c.op != GANNET_RECV) add(c.send, sends_parts ? c.send_offset(c.size) : c.count, false);
  if (c.op != GANNET_SEND) add(c.recv, receives_parts ? c.recv_offset(c.size) : c.count, true);
}

}  // namespace

bool CheckedComm::Work::wait(uint64_t timeout_ms) {
  if (!fake->wait(timeout_ms)) return false;
  if (!is_known_over) Checker::get().host_waits(clock);
  return true;
}

bool CheckedComm::Work::is_over() {
  if (!fake->is_over()) return false;
  Checker::get().host_learns(clock);
  is_known_over = true;
  return true;
}

std::unique_ptr<CheckedComm::Group> CheckedComm::make_group(const std::vector<uint32_t>& ranks, uint32_t rank,
                                                            const std::string& name) {
  return std::make_unique<Group>(fake_.make_group(ranks, rank, name), name);
}

std::vector<std::unique_ptr<CheckedComm::Work>> CheckedComm::start_many(Group& group, const std::vector<Collective>& batch) {
  Checker& checker = Checker::get();
  std::vector<Collective> translated;
  std::vector<Access> accesses;
  for (const Collective& given : batch) {
    if (given.stream) checker.wait(group.actor, checker.record(static_cast<Stream*>(given.stream)->actor));
    add_accesses(accesses, given);
    Collective& one = translated.emplace_back(given);
    one.send = Memory::get().alias(given.send);
    one.recv = Memory::get().alias(given.recv);
    one.stream = nullptr;  // the given stream's work has already run
  }
  checker.counters().collectives += static_cast<int64_t>(batch.size());
  ++checker.counters().collective_launches;
  checker.launch(group.actor, batch.empty() ? "an empty batch" : sdk::name_of_collective(batch.front().op), accesses);
  std::vector<std::unique_ptr<Work>> works;
  for (auto& fake : fake_.start_many(*group.fake, translated))
    works.push_back(std::make_unique<Work>(Work{std::move(fake), checker.record(group.actor)}));
  return works;
}

// The compute stream's work runs on the caller's thread, so this thread waits. The host's clock is
// not advanced.
void CheckedComm::block(Work& work, void* stream) {
  if (!work.fake->wait(timeout_ms()))
    throw sdk::Failure(GANNET_TIMEOUT, "a collective did not complete in " + std::to_string(timeout_ms()) + " ms");
  Checker::get().wait(static_cast<Stream*>(stream)->actor, work.clock);
}

void CheckedComm::counters(gannet_comm_counters& out) const {
  fake_.counters(out);  // sets the byte counts
  gannet_comm_counters calls{};
  CommBase::counters(calls);
  out.calls = calls.calls;
}

}  // namespace gannet::accelerators::checked
