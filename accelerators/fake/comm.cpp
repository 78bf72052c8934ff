#include "comm.h"

namespace gannet::accelerators {

using sdk::Collective;
using sdk::Failure;

namespace {

// A collective's messages, and the work to do on this rank once they have arrived. The plan is
// built when the collective begins to run, because building it reads the buffers.
struct ExchangePlan {
  std::vector<Mailboxes::OutgoingMessage> outs;
  std::vector<Mailboxes::IncomingMessage> ins;
  std::function<void()> then = [] {};
};

// Holds copies of the count lists, which the caller may change once the call has returned.
struct OwnedCollective {
  explicit OwnedCollective(const Collective& given) : collective(given) {
    if (given.send_counts) send_counts.assign(given.send_counts, given.send_counts + given.size);
    if (given.recv_counts) recv_counts.assign(given.recv_counts, given.recv_counts + given.size);
  }
  Collective get() const {
    Collective c = collective;
    c.send_counts = send_counts.empty() ? nullptr : send_counts.data();
    c.recv_counts = recv_counts.empty() ? nullptr : recv_counts.data();
    return c;
  }
  Collective collective;
  std::vector<uint64_t> send_counts, recv_counts;
};

// This rank's scaled elements, and buffers for the parts received from other ranks.
struct ReductionBuffers {
  std::vector<char> scaled, arrived;
};

void add_reduction(const Collective& c, ExchangePlan& plan) {
  const bool scatters = c.op == GANNET_REDUCE_SCATTER;
  auto parts = std::make_shared<ReductionBuffers>();
  Collective mine = c;
  if (c.first_factor() != 1.0) {
    const uint64_t all = scatters ? c.send_offset(c.size) : c.count;
    const char* send = static_cast<const char*>(c.send);
    parts->scaled.assign(send, send + all * c.element_bytes());
    sdk::scale(parts->scaled.data(), all, c.dtype, c.first_factor());
    mine.send = parts->scaled.data();
  }
  const auto part_for = [&](uint32_t rank) { return scatters ? mine.send_part(rank) : static_cast<const char*>(mine.send); };
  parts->arrived.resize(c.bytes() * c.size);
  std::vector<const void*> of_ranks;
  for (uint32_t other = 0; other < c.size; ++other) {
    char* place = parts->arrived.data() + other * c.bytes();
    of_ranks.push_back(other == c.rank ? part_for(c.rank) : place);
    if (other == c.rank) continue;
    plan.outs.push_back({other, part_for(other), (scatters ? c.send_count(other) : c.count) * c.element_bytes()});
    plan.ins.push_back({other, place, c.bytes()});
  }
  plan.then = [c, parts, of_ranks, before = std::move(plan.then)] {
    before();
    sdk::reduce_parts(c.recv, of_ranks, c.count, c.dtype, c.reduce_op, c.sums_in_float(), c.final_factor());
  };
}

void add(const Collective& c, ExchangePlan& plan) {
  static const char kNothing = 0;
  static thread_local char nowhere[1];
  const uint64_t size = c.element_bytes();
  if (c.reduces()) return add_reduction(c, plan);
  if (c.op == GANNET_SEND) return plan.outs.push_back({c.peer, c.send, c.bytes()});
  if (c.op == GANNET_RECV) return plan.ins.push_back({c.peer, c.recv, c.bytes()});
  if (c.op == GANNET_BROADCAST && c.rank != c.peer) return plan.ins.push_back({c.peer, c.recv, c.bytes()});
  for (uint32_t other = 0; other < c.size; ++other) {
    if (other == c.rank) continue;
    switch (c.op) {
      case GANNET_BROADCAST:
        plan.outs.push_back({other, c.recv, c.bytes()});
        break;
      case GANNET_ALL_GATHER:
        plan.outs.push_back({other, c.send, c.bytes()});
        plan.ins.push_back({other, c.recv_part(other), c.recv_count(other) * size});
        break;
      case GANNET_ALL_TO_ALL:
        plan.outs.push_back({other, c.send_part(other), c.send_count(other) * size});
        plan.ins.push_back({other, c.recv_part(other), c.recv_count(other) * size});
        break;
      default:  // for a barrier
        plan.outs.push_back({other, &kNothing, 1});
        plan.ins.push_back({other, nowhere, 1});
    }
  }
  const void* own = c.op == GANNET_ALL_GATHER ? c.send : c.op == GANNET_ALL_TO_ALL ? c.send_part(c.rank) : nullptr;
  if (own && c.recv_count(c.rank) > 0 && own != c.recv_part(c.rank))
    std::memmove(c.recv_part(c.rank), own, c.recv_count(c.rank) * size);
}

}  // namespace

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
