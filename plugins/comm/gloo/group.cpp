#include "group.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <gannet/sdk.hpp>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "ring.h"
#include "store.h"

namespace gannet_gloo {
namespace {

using gannet::sdk::Failure;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Runs body on a thread that takes no signal: Gloo's own threads, started there, inherit the mask and leave the program's
// signals to the program, which still gets them while it waits for its peers here.
template <class Body>
void without_signals(Body&& body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::exception_ptr thrown;
  std::thread service([&] {
    try {
      body();
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  service.join();
  if (thrown) std::rethrow_exception(thrown);
}

// What c10d threw, without the stack of addresses that it adds.
std::string text_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown exception";
  }
}

// Gloo has one exception type for all input and output: only its text tells a late peer from a lost one.
Failure failure_of(const std::string& doing, const std::string& said) {
  const bool late = said.find("imed out") != std::string::npos || said.find("imeout") != std::string::npos;
  if (late) return {GANNET_TIMEOUT, doing + " timed out; Gloo says: " + said};
  return {GANNET_PEER_LOST, doing + " failed because another rank ended or closed its connection; Gloo says: " + said};
}

// Reductions need the type; Gloo has all of the contract's but int16.
at::ScalarType reducible_type(uint32_t dtype) {
  switch (dtype) {
    case GANNET_FLOAT32:
      return at::kFloat;
    case GANNET_FLOAT64:
      return at::kDouble;
    case GANNET_FLOAT16:
      return at::kHalf;
    case GANNET_BFLOAT16:
      return at::kBFloat16;
    case GANNET_INT8:
      return at::kChar;
    case GANNET_UINT8:
      return at::kByte;
    case GANNET_INT32:
      return at::kInt;
    case GANNET_INT64:
      return at::kLong;
    case GANNET_BOOL:
      return at::kByte;  // zeros and ones, see reduction()
    case GANNET_INT16:
      throw Failure(GANNET_UNSUPPORTED, "Gloo reduces no int16: widen it to int32, or use another comm plugin");
    default:
      throw Failure(GANNET_INVALID_ARGUMENT, "dtype " + std::to_string(dtype) + " is not one of gannet_dtype");
  }
}

c10d::ReduceOp reduction(uint32_t op, uint32_t dtype) {
  switch (op) {
    case GANNET_SUM:
      return dtype == GANNET_BOOL ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;  // true + true is true
    case GANNET_MAX:
      return c10d::ReduceOp::MAX;
    case GANNET_MIN:
      return c10d::ReduceOp::MIN;
    default:
      throw Failure(GANNET_INVALID_ARGUMENT, "reduce operation " + std::to_string(op) + " is not one of gannet_reduce_op");
  }
}

at::Tensor wrap(const void* pointer, uint64_t count, at::ScalarType type) {
  return at::from_blob(const_cast<void*>(pointer), {static_cast<int64_t>(count)}, at::TensorOptions().dtype(type));
}

class Backend : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  void close() {
    for (auto& context : contexts_) context->closeConnections();
  }
};

class Done : public Work {
 public:
  bool wait(uint64_t) override { return true; }
};

// What c10d started, and what remains to do on this rank when it is complete.
struct Launched {
  c10::intrusive_ptr<c10d::Work> work;
  std::function<void()> then = [] {};
};

class Pending : public Work {
 public:
  Pending(Launched launched, std::string doing, std::shared_ptr<std::atomic<bool>> aborted)
      : work_(std::move(launched.work)),
        then_(std::move(launched.then)),
        doing_(std::move(doing)),
        aborted_(std::move(aborted)) {}

  bool wait(uint64_t timeout_ms) override {
    // In slices: closing Gloo's connections does not wake who waits on this side, so abort() is seen here.
    constexpr milliseconds kSlice{100};
    const auto deadline = steady_clock::now() + milliseconds(timeout_ms);
    while (!work_->isCompleted()) {
      if (*aborted_) throw Failure(GANNET_PEER_LOST, doing_ + " was aborted by this rank");
      const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
      if (left.count() <= 0) return false;
      try {
        work_->wait(std::min(left, kSlice));
      } catch (...) {  // the slice is over, or the work failed: the loop and the line after it tell which
      }
    }
    if (auto thrown = work_->exception()) throw failure_of(doing_, text_of(thrown));
    then_();
    return true;
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> then_;
  std::string doing_;
  std::shared_ptr<std::atomic<bool>> aborted_;
};

// The ring's links, by c10d's send and receive. Messages of one tag between two ranks arrive in the order of their calls.
class Neighbours : public Link {
 public:
  Neighbours(Backend& backend, std::mutex& issuing, uint32_t rank, uint32_t size)
      : backend_(backend),
        issuing_(issuing),
        next_(static_cast<int>((rank + 1) % size)),
        previous_(static_cast<int>((rank + size - 1) % size)) {}

  std::unique_ptr<Transfer> send(const void* from, uint64_t bytes) override {
    std::vector<at::Tensor> tensors{wrap(from, bytes, at::kByte)};
    std::lock_guard lock(issuing_);
    return std::make_unique<Sent>(backend_.send(tensors, next_, kTag));
  }
  std::unique_ptr<Transfer> receive(void* to, uint64_t bytes) override {
    std::vector<at::Tensor> tensors{wrap(to, bytes, at::kByte)};
    std::lock_guard lock(issuing_);
    return std::make_unique<Sent>(backend_.recv(tensors, previous_, kTag));
  }

 private:
  static constexpr int kTag = 1;
  class Sent : public Transfer {
   public:
    explicit Sent(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
    void wait() override {
      bool is_over = false;
      try {
        is_over = work_->wait();
      } catch (...) {
        throw failure_of("a transfer of it", text_of(std::current_exception()));
      }
      if (!is_over) throw Failure(GANNET_PEER_LOST, "a transfer of it was aborted");
    }
    void abort() override { work_->abort(); }

   private:
    c10::intrusive_ptr<c10d::Work> work_;
  };
  Backend& backend_;
  std::mutex& issuing_;
  int next_, previous_;
};

class Connected : public Group {
 public:
  explicit Connected(const GroupOptions& options) : options_(options), aborted_(std::make_shared<std::atomic<bool>>(false)) {
    try {
      without_signals([&] { connect(); });
    } catch (...) {
      throw failure_of("connecting the " + std::to_string(options.size) + " ranks of group '" + options.name + "'",
                       text_of(std::current_exception()));
    }
  }

  ~Connected() override {
    // A thread of an aborted backend may sit in Gloo until Gloo's own time-out, and the destructor would join it.
    if (*aborted_) backend_.release();
  }

  std::unique_ptr<Work> start(const gannet_collective_args& args) override {
    if (args.op != GANNET_BARRIER && args.count == 0) return std::make_unique<Done>();
    const std::string doing =
        std::string(op_name(args.op)) +
        (args.op == GANNET_BARRIER ? "" : " of " + std::to_string(args.count * bytes_of(args.dtype)) + " bytes") + " in group '" +
        options_.name + "' (rank " + std::to_string(options_.rank) + " of " + std::to_string(options_.size) + ")";
    if (*aborted_) throw Failure(GANNET_PEER_LOST, doing + " cannot start: the group was aborted");
    try {
      if (args.op == GANNET_REDUCE_SCATTER) return ring(doing).start(args, doing);
      std::lock_guard lock(issuing_);
      return std::make_unique<Pending>(launch(args), doing, aborted_);
    } catch (const Failure&) {
      throw;
    } catch (...) {
      throw failure_of(doing, text_of(std::current_exception()));
    }
  }

  void abort() override {
    if (aborted_->exchange(true)) return;
    try {
      backend_->close();
    } catch (...) {  // already closed by a failure
    }
    std::lock_guard lock(making_ring_);
    if (ring_) ring_->abort();
  }

 private:
  Ring& ring(const std::string& doing) {
    std::lock_guard lock(making_ring_);
    if (*aborted_) throw Failure(GANNET_PEER_LOST, doing + " cannot start: the group was aborted");
    if (!ring_)
      ring_ = std::make_unique<Ring>(options_.rank, options_.size,
                                     std::make_unique<Neighbours>(*backend_, issuing_, options_.rank, options_.size));
    return *ring_;
  }

  void connect() {
    const milliseconds time_out(options_.timeout_ms);
    auto backend_options = c10d::ProcessGroupGloo::Options::create(time_out);
    backend_options->threads = 2;
    backend_options->devices = {!options_.interface.empty() ? c10d::ProcessGroupGloo::createDeviceForInterface(options_.interface)
                                : !options_.address.empty() ? c10d::ProcessGroupGloo::createDeviceForHostname(options_.address)
                                                            : c10d::ProcessGroupGloo::createDefaultDevice()};
    auto store = c10::make_intrusive<HostStore>(options_.store, options_.name + "/", time_out);
    backend_ =
        c10::make_intrusive<Backend>(store, static_cast<int>(options_.rank), static_cast<int>(options_.size), backend_options);
    // The caller's deadline in wait() comes first: there the sentence is ours and the work stays pending.
    backend_->setTimeout(time_out + milliseconds(10'000));
  }

  Launched launch(const gannet_collective_args& args) {
    const uint64_t size = options_.size;
    // What only moves data moves bytes, so that it takes every type.
    const uint64_t bytes = args.op == GANNET_BARRIER ? 0 : args.count * bytes_of(args.dtype);
    switch (args.op) {
      case GANNET_ALL_REDUCE: {
        const auto type = reducible_type(args.dtype);
        c10d::AllreduceOptions options;
        options.reduceOp = reduction(args.reduce_op, args.dtype);
        if (args.send != args.recv) std::memcpy(args.recv, args.send, bytes);
        std::vector<at::Tensor> tensors{wrap(args.recv, args.count, type)};
        return {backend_->allreduce(tensors, options)};
      }
      case GANNET_BROADCAST: {
        if (args.root >= size)
          throw Failure(GANNET_INVALID_ARGUMENT,
                        "broadcast from rank " + std::to_string(args.root) + " of " + std::to_string(size));
        c10d::BroadcastOptions options;
        options.rootRank = args.root;
        std::vector<at::Tensor> tensors{wrap(args.recv, bytes, at::kByte)};
        return {backend_->broadcast(tensors, options)};
      }
      case GANNET_ALL_GATHER: {
        auto output = wrap(args.recv, bytes * size, at::kByte);
        auto input = wrap(args.send, bytes, at::kByte);
        return {backend_->_allgather_base(output, input)};
      }
      case GANNET_ALL_TO_ALL: {
        auto output = wrap(args.recv, bytes * size, at::kByte);
        auto input = wrap(args.send, bytes * size, at::kByte);
        std::vector<int64_t> equal_parts;
        return {backend_->alltoall_base(output, input, equal_parts, equal_parts)};
      }
      case GANNET_BARRIER:
        return {backend_->barrier()};
    }
    throw Failure(GANNET_INVALID_ARGUMENT, "operation " + std::to_string(args.op) + " is not one of gannet_collective");
  }

  GroupOptions options_;
  std::shared_ptr<std::atomic<bool>> aborted_;  // shared with the works: they may outlive the group
  c10::intrusive_ptr<Backend> backend_;
  std::mutex issuing_;      // c10d counts its operations without a lock, and the ring's thread issues some beside the caller's
  std::mutex making_ring_;  // against abort(), which another thread calls
  std::unique_ptr<Ring> ring_;  // made by the first reduce_scatter; it ends before what it sends by
};

class Alone : public Group {
 public:
  std::unique_ptr<Work> start(const gannet_collective_args& args) override {
    const bool copies = args.op != GANNET_BARRIER && args.op != GANNET_BROADCAST;
    if (copies && args.count > 0 && args.send != args.recv) std::memmove(args.recv, args.send, args.count * bytes_of(args.dtype));
    return std::make_unique<Done>();
  }
  void abort() override {}
};

}  // namespace

uint64_t bytes_of(uint32_t dtype) {
  if (dtype == GANNET_INT16) return 2;
  return c10::elementSize(reducible_type(dtype));
}

const char* op_name(uint32_t op) {
  switch (op) {
    case GANNET_ALL_REDUCE:
      return "all_reduce";
    case GANNET_BROADCAST:
      return "broadcast";
    case GANNET_ALL_GATHER:
      return "all_gather";
    case GANNET_REDUCE_SCATTER:
      return "reduce_scatter";
    case GANNET_ALL_TO_ALL:
      return "all_to_all";
    case GANNET_BARRIER:
      return "barrier";
    default:
      return "an unknown operation";
  }
}

std::unique_ptr<Group> make_group(const GroupOptions& options) {
  if (options.size == 1) return std::make_unique<Alone>();
  return std::make_unique<Connected>(options);
}

}  // namespace gannet_gloo
