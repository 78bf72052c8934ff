#include "interfaces/comm.h"

#include <gannet/error.h>
#include <gannet/log.h>

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "interfaces/call.h"

namespace gannet {
namespace {

// Runs what may fail in the plugin: its error, unless the watch knows the reason.
template <class Body>
void explained(Comm& comm, Body&& body) {
  try {
    body();
  } catch (const Error& failure) {
    if (Watcher* watcher = comm.watcher()) {
      watcher->check();
      if (failure.code() == ErrorCode::kPeerLost && !comm.is_aborted()) watcher->explain(failure);
    }
    throw;
  }
}

}  // namespace

// ---- Work ------------------------------------------------------------------------------------------------------------

Work::Work(Work&& other) noexcept
    : comm_(other.comm_), handle_(std::exchange(other.handle_, nullptr)), timed_out_(std::exchange(other.timed_out_, false)) {}

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    finish();
    comm_ = other.comm_;
    handle_ = std::exchange(other.handle_, nullptr);
    timed_out_ = std::exchange(other.timed_out_, false);
  }
  return *this;
}

Work::~Work() { finish(); }

// The buffers of a collective in flight must outlive it, so giving a Work up waits. It cannot throw: it says what it saw.
void Work::finish() noexcept {
  if (!handle_) return;
  try {
    if (!timed_out_) return wait();
    comm_->abort();  // a second full time-out would help nobody
  } catch (const std::exception& error) {
    try {
      if (!comm_->is_aborted()) log_warning(std::string("a collective that nobody waited for failed: ") + error.what());
      if (timed_out_) comm_->abort();
    } catch (...) {  // no memory for the sentence
    }
  }
  if (handle_) comm_->api()->work_free(comm_->self(), std::exchange(handle_, nullptr));
}

void Work::wait() {
  if (!handle_) return;
  plugin::ErrorBuffer error;
  Watcher* watcher = comm_->watcher();
  const auto limit = watcher ? watcher->patience(comm_->timeout()) : comm_->timeout();
  if (watcher) watcher->begin_wait();
  const int32_t status = comm_->api()->work_wait(comm_->self(), handle_, static_cast<uint64_t>(limit.count()), error);
  if (watcher) watcher->end_wait();
  timed_out_ = status == GANNET_TIMEOUT;
  if (!timed_out_) comm_->api()->work_free(comm_->self(), std::exchange(handle_, nullptr));
  explained(*comm_, [&] { plugin::raise_unless_ok(status, error, comm_->plugin(), interfaces::who(comm_->plugin())); });
}

// ---- CommGroup -------------------------------------------------------------------------------------------------------

CommGroup::CommGroup(Comm& comm, const std::vector<uint32_t>& ranks, const std::string& name)
    : comm_(comm), ranks_(ranks), name_(name) {
  const auto self = std::find(ranks_.begin(), ranks_.end(), comm.rank());
  if (self == ranks_.end())
    throw Error(ErrorCode::kArgument, formatted("rank {} is no member of the group '{}'", comm.rank(), name),
                "only members create a group");
  rank_ = static_cast<uint32_t>(self - ranks_.begin());
  interfaces::call(comm.plugin(), comm.api()->group_create, comm.self(), ranks_.data(), size(), name.c_str(),
                   static_cast<void*>(nullptr), &handle_);
}

CommGroup::~CommGroup() { comm_.api()->group_destroy(comm_.self(), handle_); }

Work CommGroup::start(gannet_collective_args args) {
  args.struct_size = sizeof(args);
  void* work = nullptr;
  if (comm_.watcher()) comm_.watcher()->check();
  explained(comm_, [&] {
    interfaces::call(comm_.plugin(), comm_.api()->collective, comm_.self(), handle_,
                     static_cast<const gannet_collective_args*>(&args), &work);
  });
  return Work(&comm_, work);
}

namespace {

gannet_collective_args collective(gannet_collective op, const void* send, void* receive, uint64_t count, gannet_dtype dtype,
                                  void* stream) {
  gannet_collective_args args{};
  args.op = op;
  args.dtype = dtype;
  args.reduce_op = GANNET_SUM;
  args.send = send;
  args.recv = receive;
  args.count = count;
  args.stream = stream;
  return args;
}

}  // namespace

Work CommGroup::all_reduce(void* buffer, uint64_t count, gannet_dtype dtype, gannet_reduce_op op, void* stream) {
  auto args = collective(GANNET_ALL_REDUCE, buffer, buffer, count, dtype, stream);
  args.reduce_op = op;
  return start(args);
}

Work CommGroup::broadcast(void* buffer, uint64_t count, gannet_dtype dtype, uint32_t root, void* stream) {
  auto args = collective(GANNET_BROADCAST, buffer, buffer, count, dtype, stream);
  args.root = root;
  return start(args);
}

Work CommGroup::all_gather(const void* send, void* receive, uint64_t count, gannet_dtype dtype, void* stream) {
  return start(collective(GANNET_ALL_GATHER, send, receive, count, dtype, stream));
}

Work CommGroup::reduce_scatter(const void* send, void* receive, uint64_t count, gannet_dtype dtype, void* stream) {
  return start(collective(GANNET_REDUCE_SCATTER, send, receive, count, dtype, stream));
}

Work CommGroup::all_to_all(const void* send, void* receive, uint64_t count, gannet_dtype dtype, void* stream) {
  return start(collective(GANNET_ALL_TO_ALL, send, receive, count, dtype, stream));
}

void CommGroup::barrier() { start(collective(GANNET_BARRIER, nullptr, nullptr, 0, GANNET_DTYPE_NONE, nullptr)).wait(); }

// ---- Comm ------------------------------------------------------------------------------------------------------------

Comm::Comm(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host, const gannet_rendezvous& rendezvous)
    : plugin_(plugin),
      params_(std::move(params)),
      api_(interfaces::api_of<gannet_comm_api>(plugin)),
      rank_(rendezvous.rank),
      world_size_(rendezvous.world_size),
      timeout_(rendezvous.timeout_ms) {
  interfaces::call(plugin_, api_->create, host.table(), &params_.view(), &rendezvous, &self_);
}

Comm::~Comm() { api_->destroy(self_); }

gannet_comm_counters Comm::counters() const {
  gannet_comm_counters counters{};
  counters.struct_size = sizeof(counters);
  api_->counters(self_, &counters);
  return counters;
}

void Comm::abort() {
  aborted_ = true;
  api_->abort(self_);
}

}  // namespace gannet
