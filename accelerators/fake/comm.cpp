#include "comm.h"

#include "exchange.h"

namespace gannet::accelerators {

using sdk::Collective;
using sdk::Failure;

FakeComm::Group::Group(FakeComm& made_by, const std::string& name, uint32_t group_rank, uint32_t size)
    : comm(made_by),
      rank(group_rank),
      mailboxes(made_by.store_, name, group_rank, size),
      queue(made_by, name, made_by.bus_, ++made_by.groups_made_) {
  const std::lock_guard lock(comm.mutex_);
  comm.groups_.insert(this);
}

FakeComm::Group::~Group() {
  if (left_pending) mailboxes.abort();  // otherwise the queue would wait for messages that never arrive
  const std::lock_guard lock(comm.mutex_);
  comm.groups_.erase(this);
}

bool FakeComm::Work::wait(uint64_t timeout_ms) {
  if (!event.moment()->wait_reached_for(std::chrono::milliseconds(timeout_ms))) {
    group.left_pending = true;
    return false;
  }
  event.wait();
  return true;
}

FakeComm::FakeComm(const gannet_host& host, const sdk::Params& params, const gannet_rendezvous& rendezvous)
    : CommBase(host, params, rendezvous), store_(rendezvous.store) {
  if (rendezvous.world_size > 1 && !store_)
    throw Failure(GANNET_INVALID_ARGUMENT, "comm plugin 'fake' needs a store to connect its ranks");
  bus_.delay_us = static_cast<uint64_t>(params.integer("delay_us"));
  bus_.seed = static_cast<uint64_t>(params.integer("seed")) * 1009 + rendezvous.rank;
}

std::unique_ptr<FakeComm::Group> FakeComm::make_group(const std::vector<uint32_t>& ranks, uint32_t rank,
                                                      const std::string& name) {
  return std::make_unique<Group>(*this, name, rank, static_cast<uint32_t>(ranks.size()));
}

std::vector<std::unique_ptr<FakeComm::Work>> FakeComm::start_many(Group& group, const std::vector<Collective>& batch) {
  std::vector<OwnedCollective> kept;
  for (const Collective& one : batch) {
    kept.emplace_back(one);
    group.queue.wait_stream(one.stream);
  }
  group.queue.run_late([this, &group, kept = std::move(kept)] {
    ExchangePlan plan;
    for (const OwnedCollective& one : kept) {
      const Collective c = one.get();
      if (c.size == 1)
        sdk::do_alone(c);
      else
        add(c, plan);
    }
    uint64_t sent = 0, received = 0;
    for (const auto& out : plan.outs) sent += out.bytes;
    for (const auto& in : plan.ins) received += in.bytes;
    group.mailboxes.exchange(plan.outs, plan.ins);
    plan.then();
    count_traffic(sent, received);
  });
  std::vector<std::unique_ptr<Work>> works;
  works.push_back(std::make_unique<Work>(Work{group.queue.record(), group}));
  return works;
}

void FakeComm::abort() {
  const std::lock_guard lock(mutex_);
  for (Group* group : groups_) group->mailboxes.abort();
}

void* FakeComm::allocate(Group& group, uint64_t bytes) {
  void* memory = host().allocate(host().context, bytes, 64);
  if (!memory) throw Failure(GANNET_OUT_OF_MEMORY, "no memory for " + std::to_string(bytes) + " bytes");
  register_buffer(group, memory, bytes);
  return memory;
}

void FakeComm::deallocate(Group& group, void* memory) {
  unregister_buffer(group, memory);
  host().deallocate(host().context, memory);
}

void FakeComm::register_buffer(Group&, void* buffer, uint64_t bytes) {
  if (!buffer || bytes == 0) throw Failure(GANNET_INVALID_ARGUMENT, "there is no memory to register");
  const std::lock_guard lock(mutex_);
  if (!registered_.emplace(buffer, bytes).second) throw Failure(GANNET_INVALID_ARGUMENT, "this buffer is registered already");
}

void FakeComm::unregister_buffer(Group&, void* buffer) {
  const std::lock_guard lock(mutex_);
  if (registered_.erase(buffer) == 0) throw Failure(GANNET_INVALID_ARGUMENT, "this buffer is not registered");
}

}  // namespace gannet::accelerators
