#include "kit/comm/peer.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "kit/comm/device.h"

namespace gannet::kit {

Peer::Peer(const Subject& subject, uint32_t rank, uint32_t size, const gannet_store* store, std::chrono::milliseconds timeout,
           CallOutcome& outcome)
    : plugin_(*subject.plugin),
      api_(*interfaces::api_of<gannet_comm_api>(plugin_)),
      store_(store),
      params_(subject.parsed()),
      rank_(rank),
      size_(size),
      timeout_ms_(static_cast<uint64_t>(timeout.count())) {
  gannet_rendezvous rendezvous{};
  rendezvous.struct_size = sizeof(rendezvous);
  rendezvous.rank = rank;
  rendezvous.world_size = size;
  rendezvous.local_rank = rank;
  rendezvous.timeout_ms = timeout_ms_;
  rendezvous.store = size > 1 ? store : nullptr;
  rendezvous.host_address = "127.0.0.1";
  add_device(rendezvous);
  outcome = call("create", plugin_, api_.create, host_.table(), &params_.view(), &rendezvous, &self_);
  require_explained("create", outcome);
  if (!outcome.ok()) self_ = nullptr;
}

Peer::~Peer() {
  if (!self_ || std::uncaught_exceptions() > 0) return;
  const CallScope calling("destroy", 0);
  api_.destroy(self_);
}

PeerGroup Peer::world() {
  std::vector<uint32_t> ranks(size_);
  std::iota(ranks.begin(), ranks.end(), 0);
  return group(ranks, "world");
}

CallOutcome Peer::try_group(const std::vector<uint32_t>& ranks, const std::string& name, void** handle) {
  return call("group_create", plugin_, api_.group_create, self_, ranks.data(), static_cast<uint32_t>(ranks.size()), name.c_str(),
              static_cast<void*>(nullptr), handle);
}

PeerGroup Peer::group(const std::vector<uint32_t>& ranks, const std::string& name) {
  void* handle = nullptr;
  const CallOutcome outcome = try_group(ranks, name, &handle);
  require_explained("group_create", outcome);
  require_ok("group_create", outcome);
  const auto place = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
  return {*this, handle, static_cast<uint32_t>(place), static_cast<uint32_t>(ranks.size())};
}

gannet_comm_counters Peer::counters() const {
  gannet_comm_counters counters{};
  counters.struct_size = sizeof(counters);
  const CallScope calling("counters", 0);
  api_.counters(self_, &counters);
  if (counters.struct_size != sizeof(counters))
    throw CheckFailure(formatted("counters set struct_size from {} to {}", sizeof(counters), counters.struct_size),
                       text_of(place()), "struct_size is the host's");
  return counters;
}

void Peer::abort() { api_.abort(self_); }

void Peer::announce(const std::string& point) {
  plugin::ErrorBuffer error;
  int64_t come = 0;
  const int32_t added = store_->add(store_->context, point.c_str(), 1, &come, error);
  if (added != GANNET_OK) throw CheckFailure(error.message());
  const int32_t told = store_->set(store_->context, formatted("{}/{}", point, come).c_str(), "", 0, error);
  if (told != GANNET_OK) throw CheckFailure(error.message());
}

void Peer::await(const std::string& point, uint32_t of) {
  plugin::ErrorBuffer error;
  if (store_->wait(store_->context, formatted("{}/{}", point, of).c_str(), 3 * timeout_ms_, error) != GANNET_OK)
    throw CheckFailure(formatted("the other rank(s) did not come to the point where {}", point), text_of(place()));
}

// ---- PeerWork --------------------------------------------------------------------------------------------------------

PeerWork& PeerWork::operator=(PeerWork&& other) noexcept {
  std::swap(peer_, other.peer_);
  std::swap(handle_, other.handle_);
  std::swap(name_, other.name_);
  return *this;
}

PeerWork::~PeerWork() {
  if (std::uncaught_exceptions() == 0) free();
}

void PeerWork::free() {
  if (!handle_) return;
  const CallScope calling("work_free", 0, name_);
  peer_->api().work_free(peer_->self(), std::exchange(handle_, nullptr));
}

CallOutcome PeerWork::wait(uint64_t timeout_ms) {
  place().step = 0;
  set_detail(name_);
  return call("work_wait", peer_->plugin(), peer_->api().work_wait, peer_->self(), handle_, timeout_ms);
}

void PeerWork::must_end() {
  const CallOutcome outcome = wait(peer_->timeout_ms());
  require_explained("work_wait", outcome);
  require_ok("work_wait", outcome);
}

bool PeerWork::is_over() {
  set_detail(name_);
  int32_t is_over = 0;
  const CallOutcome outcome = call("work_query", peer_->plugin(), peer_->api().work_query, peer_->self(), handle_, &is_over);
  require_ok("work_query", outcome);
  return is_over != 0;
}

CallOutcome PeerWork::block(void* stream) {
  set_detail(name_);
  return call("work_block", peer_->plugin(), peer_->api().work_block, peer_->self(), handle_, stream);
}

// ---- PeerGroup -------------------------------------------------------------------------------------------------------

PeerGroup::PeerGroup(PeerGroup&& other) noexcept
    : peer_(other.peer_), handle_(std::exchange(other.handle_, nullptr)), rank_(other.rank_), size_(other.size_) {}

PeerGroup::~PeerGroup() {
  if (!handle_ || std::uncaught_exceptions() > 0) return;
  const CallScope calling("group_destroy", 0);
  peer_->api().group_destroy(peer_->self(), handle_);
}

CallOutcome PeerGroup::try_start(const gannet_collective_args& args, const std::string& name, PeerWork& work) {
  set_detail(name);
  void* handle = nullptr;
  const CallOutcome outcome =
      call("collective", peer_->plugin(), peer_->api().collective, peer_->self(), handle_, &args, &handle);
  require_explained("collective", outcome);
  if (!outcome.ok()) return outcome;
  if (!handle)
    throw CheckFailure("collective returned GANNET_OK without a work", text_of(place()),
                       "every collective that starts has a work");
  work = PeerWork(*peer_, handle, name);
  return outcome;
}

PeerWork PeerGroup::start(const gannet_collective_args& args, const std::string& name) {
  PeerWork work;
  require_ok("collective", try_start(args, name, work));
  return work;
}

PeerWork PeerGroup::start_many(const std::vector<gannet_collective_args>& batch, const std::string& name) {
  set_detail(name);
  // Use a stride other than the struct's size: the plugin must not assume its own struct size.
  struct WideArguments {
    gannet_collective_args args;
    uint64_t more[2];
  };
  std::vector<WideArguments> wide;
  for (const auto& args : batch) wide.push_back({args, {~uint64_t{0}, ~uint64_t{0}}});
  void* handle = nullptr;
  const CallOutcome outcome = call("collective_many", peer_->plugin(), peer_->api().collective_many, peer_->self(), handle_,
                                   static_cast<const gannet_collective_args*>(&wide[0].args), uint64_t{batch.size()},
                                   uint64_t{sizeof(WideArguments)}, &handle);
  require_explained("collective_many", outcome);
  require_ok("collective_many", outcome);
  if (!handle)
    throw CheckFailure("collective_many returned GANNET_OK without a work", text_of(place()), "one work for all members");
  return {*peer_, handle, name};
}

void PeerGroup::barrier() {
  gannet_collective_args args{};
  args.struct_size = sizeof(args);
  args.op = GANNET_BARRIER;
  args.factor = 1;
  start(args, "a barrier").must_end();
}

}  // namespace gannet::kit
