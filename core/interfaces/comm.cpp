#include "interfaces/comm.h"

#include <gannet/error.h>
#include <gannet/log.h>

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "interfaces/call.h"

namespace gannet {
namespace {

// Runs a body that may fail in the plugin. Throws the watch's verdict if the watch knows the
// reason, else the plugin's error.
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

// Buffers must outlive a collective in flight, so dropping a Work waits for it. A destructor cannot
// throw, so failures are logged.
void Work::finish() noexcept {
  if (!handle_) return;
  try {
    if (!timed_out_) return wait();
    comm_->abort();  // a second full timeout would not help
  } catch (const std::exception& error) {
    try {
      if (!comm_->is_aborted()) log_warning(std::string("a collective that was never waited for failed: ") + error.what());
      if (timed_out_) comm_->abort();
    } catch (...) {  // out of memory for the message
    }
  }
  if (handle_) free();
}

void Work::free() noexcept {
  interfaces::marked(comm_->plugin(), {"work_free"}, comm_->api()->work_free, comm_->self(), std::exchange(handle_, nullptr));
}

void Work::wait() {
  if (!handle_) return;
  plugin::ErrorBuffer error;
  Watcher* watcher = comm_->watcher();
  const auto limit = watcher ? watcher->patience(comm_->timeout()) : comm_->timeout();
  if (watcher) watcher->begin_wait();
  constexpr interfaces::CallPlace kPlace{"work_wait"};
  const int32_t status = interfaces::marked(comm_->plugin(), kPlace, comm_->api()->work_wait, comm_->self(), handle_,
                                            static_cast<uint64_t>(limit.count()), static_cast<gannet_error*>(error));
  if (watcher) watcher->end_wait();
  // By the contract, a work that timed out stays pending: it is not freed, since its collective
  // still writes to the buffers.
  timed_out_ = status == GANNET_TIMEOUT;
  if (!timed_out_) free();
  explained(*comm_, [&] { plugin::raise_unless_ok(status, error, comm_->plugin(), interfaces::who(comm_->plugin(), kPlace)); });
}

bool Work::is_over() const {
  int32_t is_over = 1;
  if (handle_) interfaces::call(comm_->plugin(), {"work_query"}, comm_->api()->work_query, comm_->self(), handle_, &is_over);
  return is_over != 0;
}

void Work::block(void* stream) {
  if (!stream) return wait();  // waits as long as the watch allows, not as long as the plugin does
  if (!handle_) return;
  explained(*comm_,
            [&] { interfaces::call(comm_->plugin(), {"work_block"}, comm_->api()->work_block, comm_->self(), handle_, stream); });
}

// ---- collective ------------------------------------------------------------------------------------------------------

namespace collective {
namespace {

gannet_collective_args make(gannet_collective op, const void* send, void* receive, uint64_t count, gannet_dtype dtype) {
  gannet_collective_args args{};
  args.struct_size = sizeof(args);
  args.op = op;
  args.dtype = dtype;
  args.reduce_op = GANNET_SUM;
  args.send = send;
  args.recv = receive;
  args.count = count;
  args.factor = 1.0;
  return args;
}

}  // namespace

gannet_collective_args all_reduce(void* buffer, uint64_t count, gannet_dtype dtype, gannet_reduce_op op) {
  auto args = make(GANNET_ALL_REDUCE, buffer, buffer, count, dtype);
  args.reduce_op = op;
  return args;
}

gannet_collective_args broadcast(void* buffer, uint64_t count, gannet_dtype dtype, uint32_t root) {
  auto args = make(GANNET_BROADCAST, buffer, buffer, count, dtype);
  args.peer = root;
  return args;
}

gannet_collective_args all_gather(const void* send, void* receive, uint64_t count, gannet_dtype dtype) {
  return make(GANNET_ALL_GATHER, send, receive, count, dtype);
}

gannet_collective_args reduce_scatter(const void* send, void* receive, uint64_t count, gannet_dtype dtype, gannet_reduce_op op) {
  auto args = make(GANNET_REDUCE_SCATTER, send, receive, count, dtype);
  args.reduce_op = op;
  return args;
}

gannet_collective_args all_to_all(const void* send, void* receive, uint64_t count, gannet_dtype dtype) {
  return make(GANNET_ALL_TO_ALL, send, receive, count, dtype);
}

gannet_collective_args send(const void* buffer, uint64_t count, gannet_dtype dtype, uint32_t to) {
  auto args = make(GANNET_SEND, buffer, nullptr, count, dtype);
  args.peer = to;
  return args;
}

gannet_collective_args receive(void* buffer, uint64_t count, gannet_dtype dtype, uint32_t from) {
  auto args = make(GANNET_RECV, nullptr, buffer, count, dtype);
  args.peer = from;
  return args;
}

gannet_collective_args barrier() { return make(GANNET_BARRIER, nullptr, nullptr, 0, GANNET_DTYPE_NONE); }

}  // namespace collective

// ---- CommGroup -------------------------------------------------------------------------------------------------------

CommGroup::CommGroup(Comm& comm, const std::vector<uint32_t>& ranks, const std::string& name)
    : comm_(comm), ranks_(ranks), name_(name) {
  const auto self = std::find(ranks_.begin(), ranks_.end(), comm.rank());
  if (self == ranks_.end())
    throw Error(ErrorCode::kArgument, formatted("rank {} is not a member of the group '{}'", comm.rank(), name),
                "only members create a group");
  rank_ = static_cast<uint32_t>(self - ranks_.begin());
  bool is_world = size() == comm.world_size();
  for (uint32_t i = 0; i < size(); ++i) is_world = is_world && ranks_[i] == i;
  interfaces::call(comm.plugin(), {"group_create"}, comm.api()->group_create, comm.self(), ranks_.data(), size(), name.c_str(),
                   is_world ? const_cast<void*>(comm.communicator()) : nullptr, &handle_);
}

CommGroup::~CommGroup() {
  interfaces::marked(comm_.plugin(), {"group_destroy"}, comm_.api()->group_destroy, comm_.self(), handle_);
}

Work CommGroup::started(const std::function<void(void** work)>& start) {
  void* work = nullptr;
  if (comm_.watcher()) comm_.watcher()->check();
  explained(comm_, [&] { start(&work); });
  return Work(&comm_, work);
}

Work CommGroup::start(gannet_collective_args args, void* stream) {
  args.stream = stream;
  return started([&](void** work) {
    interfaces::call(comm_.plugin(), {"collective"}, comm_.api()->collective, comm_.self(), handle_,
                     static_cast<const gannet_collective_args*>(&args), work);
  });
}

Work CommGroup::start_many(std::vector<gannet_collective_args> batch, void* stream) {
  if (batch.empty()) return {};
  for (auto& args : batch) args.stream = stream;
  return started([&](void** work) {
    interfaces::call(comm_.plugin(), {"collective_many"}, comm_.api()->collective_many, comm_.self(), handle_,
                     static_cast<const gannet_collective_args*>(batch.data()), uint64_t{batch.size()},
                     uint64_t{sizeof(gannet_collective_args)}, work);
  });
}

std::shared_ptr<void> CommGroup::allocate(uint64_t bytes) {
  if (!comm_.api()->allocate) return nullptr;
  void* memory = nullptr;
  interfaces::call(comm_.plugin(), {"allocate"}, comm_.api()->allocate, comm_.self(), handle_, bytes, &memory);
  // The deleter refers to this group, so the memory must be released before the group.
  return {memory, [this](void* given) {
            interfaces::marked(comm_.plugin(), {"deallocate"}, comm_.api()->deallocate, comm_.self(), handle_, given);
          }};
}

std::shared_ptr<void> CommGroup::register_buffer(void* buffer, uint64_t bytes) {
  if (!comm_.api()->register_buffer) return nullptr;
  interfaces::call(comm_.plugin(), {"register_buffer"}, comm_.api()->register_buffer, comm_.self(), handle_, buffer, bytes);
  return {buffer, [this](void* given) {
            plugin::ErrorBuffer error;
            if (interfaces::marked(comm_.plugin(), {"unregister_buffer"}, comm_.api()->unregister_buffer, comm_.self(), handle_,
                                   given, static_cast<gannet_error*>(error)) != GANNET_OK)
              log_warning(std::string("a buffer stays registered: ") + error.message());
          }};
}

// ---- Comm ------------------------------------------------------------------------------------------------------------

Comm::Comm(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host, const gannet_rendezvous& rendezvous)
    : plugin_(plugin),
      params_(std::move(params)),
      api_(interfaces::api_of<gannet_comm_api>(plugin)),
      rank_(rendezvous.rank),
      world_size_(rendezvous.world_size),
      timeout_(rendezvous.timeout_ms) {
  interfaces::call(plugin_, {"create"}, api_->create, host.table(), &params_.view(), &rendezvous, &self_);
}

Comm::~Comm() { interfaces::marked(plugin_, {"destroy"}, api_->destroy, self_); }

bool serves_host_memory(const plugin::Plugin& comm) { return comm.device().empty() || lower(comm.device()) == "cpu"; }

gannet_dtype Comm::sum_dtype(gannet_dtype dtype) const {
  return static_cast<gannet_dtype>(
      interfaces::marked(plugin_, {"sum_dtype"}, api_->sum_dtype, self_, static_cast<uint32_t>(dtype)));
}

gannet_comm_counters Comm::counters() const {
  gannet_comm_counters counters{};
  counters.struct_size = sizeof(counters);
  interfaces::marked(plugin_, {"counters"}, api_->counters, self_, &counters);
  return counters;
}

void Comm::abort() {
  aborted_ = true;
  interfaces::marked(plugin_, {"abort"}, api_->abort, self_);
}

}  // namespace gannet
