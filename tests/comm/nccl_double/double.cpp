// A stand-in for NCCL between processes of one host, for the devices `fake` and `checked`: the
// functions that the Comm plugin nccl uses, with NCCL's manners. Calls do not block; a collective runs
// in its stream, late; one that fails never ends until the communicator is aborted, as a GPU's kernel
// does; fault.h orders faults.
#include <signal.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "accelerators/fake/exchange.h"
#include "accelerators/fake/native_stream.h"
#include "fault.h"
#include "file_store.h"
#include "library.h"

namespace gannet_nccl {

// A communicator of the double.
struct OpaqueComm {
  OpaqueComm(std::string in, int rank, int size)
      : folder(std::move(in)), rank(static_cast<uint32_t>(rank)), size(static_cast<uint32_t>(size)), store(folder, is_aborted) {}

  const std::string folder;
  const uint32_t rank, size;
  std::atomic<bool> is_aborted{false};
  nccl_double::FileStore store;                     // of the beginning
  std::unique_ptr<nccl_double::FileStore> leaving;  // of the end; programs may exit without one
  std::atomic<Result> state{kInProgress};
  std::string last_error;  // written before `state`
  std::unique_ptr<gannet::accelerators::Mailboxes> mailboxes;
  std::thread beginning;
  std::atomic<int> running{0};
  int splits = 0;
  std::mutex mutex;  // guards factors
  std::map<int, double> factors;

  void begin();
  void fail(Result result, const std::string& error) {
    last_error = error;
    state = result;
    while (!is_aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

}  // namespace gannet_nccl

namespace {

using gannet::accelerators::ExchangePlan;
using gannet::accelerators::Mailboxes;
using gannet::accelerators::NativeStream;
using gannet::sdk::Collective;
using gannet::sdk::Failure;
using nccl_double::Fault;
using namespace gannet_nccl;

// Communicators are shared with the work in flight, and found by their handle.
std::mutex mutex_of_all;
std::map<Comm, std::shared_ptr<OpaqueComm>>& all() {
  static auto& known = *new std::map<Comm, std::shared_ptr<OpaqueComm>>;
  return known;
}
std::shared_ptr<OpaqueComm> of(Comm comm) {
  const std::lock_guard lock(mutex_of_all);
  const auto found = all().find(comm);
  return found == all().end() ? nullptr : found->second;
}
void forget(Comm comm) {
  const std::lock_guard lock(mutex_of_all);
  all().erase(comm);
}

// One call between group_start and group_end.
struct Call {
  std::shared_ptr<OpaqueComm> comm;
  NativeStream* stream;
  Collective collective;
  const void* root_send = nullptr;  // of a broadcast out of place
  std::vector<uint64_t> counts;     // of a reduce: all elements are the root's
};
thread_local int depth = 0;
thread_local std::vector<Call> calls;

uint32_t dtype_of(DataType type) {
  switch (type) {
    case kInt8:
      return GANNET_INT8;
    case kUint8:
      return GANNET_UINT8;
    case kInt32:
      return GANNET_INT32;
    case kInt64:
      return GANNET_INT64;
    case kFloat16:
      return GANNET_FLOAT16;
    case kFloat32:
      return GANNET_FLOAT32;
    case kFloat64:
      return GANNET_FLOAT64;
    case kBfloat16:
      return GANNET_BFLOAT16;
  }
  return GANNET_DTYPE_NONE;
}

void add_uses(const Call& call, std::vector<NativeStream::MemoryUse>& uses) {
  const Collective& c = call.collective;
  const uint64_t size = c.element_bytes();
  const bool sends_parts = c.op == GANNET_REDUCE_SCATTER, receives_parts = c.op == GANNET_ALL_GATHER;
  if (call.root_send && c.rank == c.peer) uses.push_back({call.root_send, c.bytes(), false});
  if (c.send) uses.push_back({c.send, (sends_parts ? c.send_offset(c.size) : c.count) * size, false});
  if (c.recv)
    uses.push_back({c.recv, (receives_parts ? c.size : 1) * c.count * size,
                    c.op != GANNET_BROADCAST || c.rank != c.peer || call.root_send != c.recv});
}

// Runs the calls of one launch, which are of one communicator and stream.
void run(const std::vector<Call>& launch) {
  OpaqueComm& comm = *launch.front().comm;
  ExchangePlan plan;
  std::deque<std::pair<const void*, uint64_t>> to_itself;
  for (const Call& call : launch) {
    Collective c = call.collective;
    if (!call.counts.empty()) c.send_counts = call.counts.data();
    c.send = call.stream->memory(c.send);
    c.recv = call.stream->memory(c.recv);
    if (call.root_send && c.rank == c.peer) {
      const void* from = call.stream->memory(call.root_send);
      if (from != c.recv) std::memmove(c.recv, from, c.bytes());
    }
    if (c.op == GANNET_SEND && c.peer == c.rank) {
      to_itself.emplace_back(c.send, c.bytes());
    } else if (c.op == GANNET_RECV && c.peer == c.rank) {
      if (to_itself.empty() || to_itself.front().second != c.bytes())
        throw Failure(GANNET_INVALID_ARGUMENT, "a message to itself");
      std::memmove(c.recv, to_itself.front().first, c.bytes());
      to_itself.pop_front();
    } else if (c.size == 1) {
      gannet::sdk::do_alone(c);
    } else {
      gannet::accelerators::add(c, plan);
    }
  }
  comm.mailboxes->exchange(plan.outs, plan.ins);
  plan.then();
}

void run_late(const std::vector<Call>& launch, uint64_t number, uint64_t delay) {
  OpaqueComm& comm = *launch.front().comm;
  ++comm.running;
  struct Over {
    std::atomic<int>& running;
    ~Over() { --running; }
  } const over{comm.running};
  Fault& fault = Fault::get();
  if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
  if (comm.is_aborted) return;
  if (fault.is_now("die", number)) ::raise(SIGKILL);
  if (fault.is_now("async_error", number))
    return comm.fail(kRemoteError, "NET/Socket : peer 10.0.0.2<4711> has closed the connection on eth0");
  if (fault.is_now("silent", number)) return comm.fail(kSuccess, "");
  try {
    run(launch);
  } catch (const Failure& failure) {
    comm.fail(kRemoteError, failure.what());
  }
}

Result launch_all() {
  std::vector<Call> launch = std::move(calls);
  calls.clear();
  if (launch.empty()) return kSuccess;
  for (const Call& call : launch)
    if (call.comm != launch.front().comm || call.stream != launch.front().stream) return kInvalidUsage;
  OpaqueComm& comm = *launch.front().comm;
  if (comm.state != kSuccess) return comm.state;
  std::vector<NativeStream::MemoryUse> uses;
  for (const Call& call : launch) add_uses(call, uses);
  static thread_local std::minstd_rand random(static_cast<unsigned>(::getpid()));
  const uint64_t number = Fault::get().next_launch(), most = Fault::get().delay_us, delay = most ? random() % (most + 1) : 0;
  NativeStream& stream = *launch.front().stream;
  const char* name = launch.size() > 1 ? "a launch of nccl" : gannet::sdk::name_of_collective(launch.front().collective.op);
  stream.submit(name, uses, [launch = std::move(launch), number, delay] { run_late(launch, number, delay); });
  return kSuccess;
}

Result give(Call call) {
  if (!call.comm) return kInvalidArgument;
  if (call.comm->state != kSuccess) return call.comm->state;
  if (call.collective.op != GANNET_SEND && call.collective.op != GANNET_RECV && call.collective.count == 0 && call.counts.empty())
    return kSuccess;
  calls.push_back(std::move(call));
  return depth > 0 ? kSuccess : launch_all();
}

Call call_of(Comm comm, uint32_t op, const void* send, void* recv, uint64_t count, DataType type, Stream stream) {
  Call call{of(comm), static_cast<NativeStream*>(stream), {}, nullptr, {}};
  Collective& c = call.collective;
  c.struct_size = sizeof(gannet_collective_args);
  c.op = op;
  c.dtype = dtype_of(type);
  c.send = send;
  c.recv = recv;
  c.count = count;
  if (call.comm) {
    c.rank = call.comm->rank;
    c.size = call.comm->size;
  }
  return call;
}

bool set_op(Call& call, int op) {
  Collective& c = call.collective;
  if (!call.comm) return false;
  if (op == kSum) c.reduce_op = GANNET_SUM;
  if (op == kMax) c.reduce_op = GANNET_MAX;
  if (op == kMin) c.reduce_op = GANNET_MIN;
  if (op == kAverage) c.reduce_op = GANNET_AVERAGE;
  if (op > kAverage) {
    const std::lock_guard lock(call.comm->mutex);
    const auto found = call.comm->factors.find(op);
    if (found == call.comm->factors.end()) return false;
    c.reduce_op = GANNET_PREMULTIPLIED_SUM;
    c.factor = found->second;
  }
  return c.reduce_op != 0 && c.dtype != GANNET_DTYPE_NONE;
}

double number_at(const void* place, DataType type) {
  const auto as = [&](auto number) {
    std::memcpy(&number, place, sizeof(number));
    return static_cast<double>(static_cast<float>(number));
  };
  if (type == kFloat64) {
    double number;
    std::memcpy(&number, place, sizeof(number));
    return number;
  }
  return type == kFloat16 ? as(gannet::sdk::Float16{}) : type == kBfloat16 ? as(gannet::sdk::BFloat16{}) : as(float{});
}

Comm begin(const std::string& folder, int rank, int size) {
  auto made = std::make_shared<OpaqueComm>(folder, rank, size);
  const Comm comm = made.get();
  {
    const std::lock_guard lock(mutex_of_all);
    all()[comm] = made;
  }
  comm->beginning = std::thread([made] { made->begin(); });
  return comm;
}

}  // namespace

void gannet_nccl::OpaqueComm::begin() {
  const Fault& fault = Fault::get();
  const std::string refused = "socketStartConnect: Connect to 10.0.0.3<4712> failed : Connection refused";
  if (fault.is("no_init")) return fail(kInProgress, refused);
  if (fault.is("no_connection")) return fail(kSystemError, refused);
  if (fault.is("duplicate")) return fail(kInvalidUsage, "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 3b000");
  try {
    mailboxes = std::make_unique<Mailboxes>(store.view(), "world", rank, size);
    if (store.add("met", 1) == size) store.remove();
    state = kSuccess;
  } catch (const Failure& failure) {
    fail(kSystemError, failure.what());
  }
}

#define NCCL_API extern "C" __attribute__((visibility("default")))

NCCL_API Result ncclGetVersion(int* version) {
  *version = 22703;
  return kSuccess;
}
NCCL_API const char* ncclGetErrorString(Result result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return kTexts[result];
}
NCCL_API const char* ncclGetLastError(Comm comm) {
  const auto known = of(comm);
  static thread_local std::string text;
  text = known ? known->last_error : "";
  return text.c_str();
}
NCCL_API Result ncclGetUniqueId(UniqueId* id) {
  if (Fault::get().is("no_id")) return kSystemError;
  if (Fault::get().is("lost_id")) ::raise(SIGKILL);
  static std::atomic<int> made{0};
  const std::string folder = "/dev/shm/gannet-nccl-double-" + std::to_string(::getpid()) + "-" + std::to_string(++made) + "-" +
                             std::to_string(std::chrono::steady_clock::now().time_since_epoch().count());
  std::memset(id->bytes, 0, sizeof(id->bytes));
  std::memcpy(id->bytes, folder.data(), folder.size());
  return kSuccess;
}
NCCL_API Result ncclCommInitRankConfig(Comm* comm, int size, UniqueId id, int rank, Config* config) {
  if (!config || config->magic != 0xcafebeef || config->size < sizeof(Config) || config->is_blocking != 0 || rank < 0 ||
      rank >= size)
    return kInvalidArgument;
  *comm = begin(id.bytes, rank, size);
  return kInProgress;
}
NCCL_API Result ncclCommSplit(Comm comm, int color, int key, Comm* made, Config* config) {
  const auto parent = of(comm);
  if (!parent || color != 0 || !config || config->magic != 0xcafebeef) return kInvalidArgument;
  *made = begin(parent->folder + "-split" + std::to_string(++parent->splits), key, static_cast<int>(parent->size));
  return kInProgress;
}
NCCL_API Result ncclCommGetAsyncError(Comm comm, Result* error) {
  const auto known = of(comm);
  if (!known) return kInvalidArgument;
  *error = known->leaving && !known->leaving->is_removed() && !known->leaving->has("gone") ? kInProgress : known->state.load();
  return kSuccess;
}
NCCL_API Result ncclCommFinalize(Comm comm) {
  const auto known = of(comm);
  if (!known || known->state != kSuccess) return kInvalidUsage;
  known->leaving = std::make_unique<nccl_double::FileStore>(known->folder + "-leaving", known->is_aborted);
  if (known->leaving->add("leaving", 1) == known->size) known->leaving->set("gone", "");
  return kInProgress;
}
NCCL_API Result ncclCommDestroy(Comm comm) {
  const auto known = of(comm);
  if (!known) return kInvalidArgument;
  if (known->beginning.joinable()) known->beginning.join();
  if (known->leaving && known->leaving->add("left", 1) == known->size) known->leaving->remove();
  forget(comm);
  return kSuccess;
}
NCCL_API Result ncclCommAbort(Comm comm) {
  const auto known = of(comm);
  if (!known) return kInvalidArgument;
  known->is_aborted = true;
  if (known->beginning.joinable()) known->beginning.join();
  if (known->mailboxes) known->mailboxes->abort();
  while (known->running > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  known->store.remove();
  if (known->leaving) known->leaving->remove();
  forget(comm);
  return kSuccess;
}
NCCL_API Result ncclGroupStart() {
  ++depth;
  return kSuccess;
}
NCCL_API Result ncclGroupEnd() {
  if (depth == 0) return kInvalidUsage;
  return --depth > 0 ? kSuccess : launch_all();
}
NCCL_API Result ncclSend(const void* send, size_t count, DataType type, int peer, Comm comm, Stream stream) {
  Call call = call_of(comm, GANNET_SEND, send, nullptr, count, type, stream);
  call.collective.peer = static_cast<uint32_t>(peer);
  return give(std::move(call));
}
NCCL_API Result ncclRecv(void* recv, size_t count, DataType type, int peer, Comm comm, Stream stream) {
  Call call = call_of(comm, GANNET_RECV, nullptr, recv, count, type, stream);
  call.collective.peer = static_cast<uint32_t>(peer);
  return give(std::move(call));
}
NCCL_API Result ncclBroadcast(const void* send, void* recv, size_t count, DataType type, int root, Comm comm, Stream stream) {
  Call call = call_of(comm, GANNET_BROADCAST, nullptr, recv, count, type, stream);
  call.collective.peer = static_cast<uint32_t>(root);
  call.root_send = send;
  return give(std::move(call));
}
NCCL_API Result ncclReduce(const void* send, void* recv, size_t count, DataType type, int op, int root, Comm comm,
                           Stream stream) {
  Call call = call_of(comm, GANNET_REDUCE_SCATTER, send, recv, 0, type, stream);
  if (!set_op(call, op)) return kInvalidArgument;
  call.counts.assign(call.comm->size, 0);
  call.counts[static_cast<size_t>(root)] = count;
  call.collective.send_counts = call.counts.data();  // the vector's elements stay where they are when it is moved
  call.collective.count = call.comm->rank == static_cast<uint32_t>(root) ? count : 0;
  return give(std::move(call));
}
NCCL_API Result ncclAllReduce(const void* send, void* recv, size_t count, DataType type, int op, Comm comm, Stream stream) {
  Call call = call_of(comm, GANNET_ALL_REDUCE, send, recv, count, type, stream);
  return set_op(call, op) ? give(std::move(call)) : kInvalidArgument;
}
NCCL_API Result ncclAllGather(const void* send, void* recv, size_t count, DataType type, Comm comm, Stream stream) {
  return give(call_of(comm, GANNET_ALL_GATHER, send, recv, count, type, stream));
}
NCCL_API Result ncclReduceScatter(const void* send, void* recv, size_t count, DataType type, int op, Comm comm, Stream stream) {
  Call call = call_of(comm, GANNET_REDUCE_SCATTER, send, recv, count, type, stream);
  return set_op(call, op) ? give(std::move(call)) : kInvalidArgument;
}
NCCL_API Result ncclRedOpCreatePreMulSum(int* op, void* scalar, DataType type, ScalarPlace place, Comm comm) {
  const auto known = of(comm);
  if (!known || place != kScalarOnHost) return kInvalidArgument;
  const std::lock_guard lock(known->mutex);
  *op = known->factors.empty() ? 5 : known->factors.rbegin()->first + 1;
  known->factors[*op] = number_at(scalar, type);
  return kSuccess;
}
NCCL_API Result ncclRedOpDestroy(int op, Comm comm) {
  const auto known = of(comm);
  if (!known) return kInvalidArgument;
  const std::lock_guard lock(known->mutex);
  return known->factors.erase(op) == 1 ? kSuccess : kInvalidArgument;
}
