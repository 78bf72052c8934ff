#include "group.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "messages.h"
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
    case GANNET_AVERAGE:
    case GANNET_PREMULTIPLIED_SUM:
      return dtype == GANNET_BOOL ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;  // true + true is true
    case GANNET_MAX:
      return c10d::ReduceOp::MAX;
    default:
      return c10d::ReduceOp::MIN;
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
  bool is_over() override { return true; }
};

// All of them.
class Several : public Work {
 public:
  void add(std::unique_ptr<Work> work) { works_.push_back(std::move(work)); }
  bool wait(uint64_t timeout_ms) override {
    const auto deadline = steady_clock::now() + milliseconds(timeout_ms);
    return std::all_of(works_.begin(), works_.end(), [&](auto& work) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
      return work->wait(static_cast<uint64_t>(std::max<int64_t>(left.count(), 0)));
    });
  }
  bool is_over() override {
    return std::all_of(works_.begin(), works_.end(), [](auto& work) { return work->is_over(); });
  }

 private:
  std::vector<std::unique_ptr<Work>> works_;
};

// What c10d started, and what remains to do on this rank when it is complete.
struct Launched {
  c10::intrusive_ptr<c10d::Work> work;
  std::function<void()> then = nullptr;
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
    if (auto then = std::exchange(then_, nullptr)) then();
    return true;
  }
  bool is_over() override { return *aborted_ || work_->isCompleted(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> then_;
  std::string doing_;
  std::shared_ptr<std::atomic<bool>> aborted_;
};

// What a thread of ours waits for without a limit.
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

// c10d's send and receive. Messages of one lane between two ranks arrive in the order of their calls.
enum Lane { kRing = 1, kMessages = 2, kParts = 3 };

class Mail {
 public:
  Mail(Backend& backend, std::mutex& issuing) : backend_(backend), issuing_(issuing) {}
  std::unique_ptr<Transfer> send(const void* from, uint64_t bytes, uint32_t to, Lane lane) {
    std::vector<at::Tensor> tensors{wrap(from, bytes, at::kByte)};
    const std::lock_guard lock(issuing_);
    return std::make_unique<Sent>(backend_.send(tensors, static_cast<int>(to), lane));
  }
  std::unique_ptr<Transfer> receive(void* to, uint64_t bytes, uint32_t from, Lane lane) {
    std::vector<at::Tensor> tensors{wrap(to, bytes, at::kByte)};
    const std::lock_guard lock(issuing_);
    return std::make_unique<Sent>(backend_.recv(tensors, static_cast<int>(from), lane));
  }

 private:
  Backend& backend_;
  std::mutex& issuing_;
};

// The ring's two links.
class Neighbours : public Link {
 public:
  Neighbours(Mail mail, uint32_t rank, uint32_t size)
      : mail_(mail), next_((rank + 1) % size), previous_((rank + size - 1) % size) {}
  std::unique_ptr<Transfer> send(const void* from, uint64_t bytes) override { return mail_.send(from, bytes, next_, kRing); }
  std::unique_ptr<Transfer> receive(void* to, uint64_t bytes) override { return mail_.receive(to, bytes, previous_, kRing); }

 private:
  Mail mail_;
  uint32_t next_, previous_;
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

  std::unique_ptr<Work> start(const Collective& c) override {
    const std::string doing = sentence(c);
    return begin(doing, [&]() -> std::unique_ptr<Work> {
      if (moves_nothing(c)) return std::make_unique<Done>();
      if (c.op == GANNET_REDUCE_SCATTER)
        return c.send_counts || c.sums_in_float() || c.reduce_op == GANNET_PREMULTIPLIED_SUM ? exchange_and_sum(c, doing)
                                                                                             : ring(doing).start(c, doing);
      if (c.op == GANNET_SEND || c.op == GANNET_RECV || (c.op == GANNET_ALL_GATHER && c.recv_counts)) {
        std::vector<std::unique_ptr<Transfer>> transfers;
        add_transfers(c, transfers);
        return messages_.watch(std::move(transfers), doing);
      }
      const std::lock_guard lock(issuing_);
      return std::make_unique<Pending>(launch(c), doing, aborted_);
    });
  }

  std::unique_ptr<Work> start_many(const std::vector<Collective>& batch) override {
    auto works = std::make_unique<Several>();
    std::vector<std::unique_ptr<Transfer>> transfers;
    const std::string doing = "a batch of " + std::to_string(batch.size()) + place();
    for (const Collective& c : batch) {
      if (c.op != GANNET_SEND && c.op != GANNET_RECV)
        works->add(start(c));
      else if (c.count > 0)
        begin(doing, [&]() -> std::unique_ptr<Work> {
          add_transfers(c, transfers);
          return nullptr;
        });
    }
    if (!transfers.empty()) works->add(messages_.watch(std::move(transfers), doing));
    return works;
  }

  void abort() override {
    if (aborted_->exchange(true)) return;
    try {
      backend_->close();
    } catch (...) {  // already closed by a failure
    }
    {
      const std::lock_guard lock(making_ring_);
      if (ring_) ring_->abort();
    }
    messages_.abort();
  }

 private:
  std::string place() const {
    return " in group '" + options_.name + "' (rank " + std::to_string(options_.rank) + " of " + std::to_string(options_.size) +
           ")";
  }
  std::string sentence(const Collective& c) const {
    std::string text = gannet::sdk::name_of_collective(c.op);
    if (c.op != GANNET_BARRIER) text += " of " + std::to_string(c.bytes()) + " bytes";
    if (c.op == GANNET_SEND) text += " to rank " + std::to_string(c.peer);
    if (c.op == GANNET_RECV) text += " from rank " + std::to_string(c.peer);
    return text + place();
  }
  bool moves_nothing(const Collective& c) const {
    return c.op != GANNET_BARRIER && c.count == 0 && !c.send_counts && !c.recv_counts;
  }

  // What c10d throws, as a sentence.
  template <class Body>
  std::unique_ptr<Work> begin(const std::string& doing, Body&& body) {
    if (*aborted_) throw Failure(GANNET_PEER_LOST, doing + " cannot start: the group was aborted");
    try {
      return body();
    } catch (const Failure&) {
      throw;
    } catch (...) {
      throw failure_of(doing, text_of(std::current_exception()));
    }
  }

  void add_transfers(const Collective& c, std::vector<std::unique_ptr<Transfer>>& transfers) {
    Mail mail(*backend_, issuing_);
    if (c.op == GANNET_SEND) return transfers.push_back(mail.send(c.send, c.bytes(), c.peer, kMessages));
    if (c.op == GANNET_RECV) return transfers.push_back(mail.receive(c.recv, c.bytes(), c.peer, kMessages));
    for (uint32_t other = 0; other < c.size; ++other)  // every part of the others straight to its place
      if (other != c.rank && c.recv_count(other) > 0)
        transfers.push_back(mail.receive(c.recv_part(other), c.recv_count(other) * c.element_bytes(), other, kParts));
    for (uint32_t step = 1; step < c.size && c.count > 0; ++step)  // each rank begins with another receiver
      transfers.push_back(mail.send(c.send, c.bytes(), (c.rank + step) % c.size, kParts));
    if (c.count > 0 && c.send != c.recv_part(c.rank)) std::memmove(c.recv_part(c.rank), c.send, c.bytes());
  }

  // A reduce-scatter whose parts go straight to their ranks: the same bytes on the wire as the ring's, this rank's part of every
  // rank in memory at once, and one sum, in the order of the ranks, that is rounded once.
  std::unique_ptr<Work> exchange_and_sum(const Collective& c, const std::string& doing) {
    using gannet::sdk::scale;
    const auto scaled = std::make_shared<std::vector<char>>();
    Collective sent = c;
    if (c.first_factor() != 1.0) {
      const uint64_t all = c.send_offset(c.size);
      scaled->assign(static_cast<const char*>(c.send), static_cast<const char*>(c.send) + all * c.element_bytes());
      scale(scaled->data(), all, c.dtype, c.first_factor());
      sent.send = scaled->data();
    }
    const auto arrived = std::make_shared<std::vector<char>>(c.bytes() * c.size);  // by rank; this rank's own place stays empty
    std::vector<std::unique_ptr<Transfer>> transfers;
    Mail mail(*backend_, issuing_);
    for (uint32_t other = 0; other < c.size; ++other)
      if (other != c.rank && c.count > 0)
        transfers.push_back(mail.receive(arrived->data() + other * c.bytes(), c.bytes(), other, kParts));
    for (uint32_t step = 1; step < c.size; ++step)
      if (const uint32_t other = (c.rank + step) % c.size; c.send_count(other) > 0)
        transfers.push_back(mail.send(sent.send_part(other), c.send_count(other) * c.element_bytes(), other, kParts));
    const char* own = sent.send_part(c.rank);
    return messages_.watch(std::move(transfers), doing, [c, own, scaled, arrived] {
      std::vector<const void*> parts;
      for (uint32_t rank = 0; rank < c.size; ++rank) parts.push_back(rank == c.rank ? own : arrived->data() + rank * c.bytes());
      gannet::sdk::reduce_parts(c.recv, parts, c.count, c.dtype, c.reduce_op, c.sums_in_float(), c.final_factor());
    });
  }

  Ring& ring(const std::string& doing) {
    std::lock_guard lock(making_ring_);
    if (*aborted_) throw Failure(GANNET_PEER_LOST, doing + " cannot start: the group was aborted");
    if (!ring_)
      ring_ = std::make_unique<Ring>(options_.rank, options_.size,
                                     std::make_unique<Neighbours>(Mail(*backend_, issuing_), options_.rank, options_.size));
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

  Launched launch(const Collective& c) {
    const uint64_t size = options_.size, bytes = c.bytes();
    // What only moves data moves bytes, so that it takes every type.
    switch (c.op) {
      case GANNET_ALL_REDUCE:
        return c.sums_in_float() ? launch_wide_sum(c) : launch_sum(c);
      case GANNET_BROADCAST: {
        c10d::BroadcastOptions options;
        options.rootRank = c.peer;
        std::vector<at::Tensor> tensors{wrap(c.recv, bytes, at::kByte)};
        return {backend_->broadcast(tensors, options)};
      }
      case GANNET_ALL_GATHER: {
        auto output = wrap(c.recv, bytes * size, at::kByte);
        auto input = wrap(c.send, bytes, at::kByte);
        return {backend_->_allgather_base(output, input)};
      }
      case GANNET_ALL_TO_ALL: {
        auto output = wrap(c.recv, c.recv_offset(c.size) * c.element_bytes(), at::kByte);
        auto input = wrap(c.send, c.send_offset(c.size) * c.element_bytes(), at::kByte);
        std::vector<int64_t> out_bytes, in_bytes;  // empty: equal parts
        for (uint32_t i = 0; c.send_counts && i < c.size; ++i) {
          out_bytes.push_back(static_cast<int64_t>(c.recv_counts[i] * c.element_bytes()));
          in_bytes.push_back(static_cast<int64_t>(c.send_counts[i] * c.element_bytes()));
        }
        return {backend_->alltoall_base(output, input, out_bytes, in_bytes)};
      }
      default:
        return {backend_->barrier()};
    }
  }

  Launched launch_sum(const Collective& c) {
    const auto type = reducible_type(c.dtype);
    c10d::AllreduceOptions options;
    options.reduceOp = reduction(c.reduce_op, c.dtype);
    if (c.send != c.recv) std::memcpy(c.recv, c.send, c.bytes());
    gannet::sdk::scale(c.recv, c.count, c.dtype, c.first_factor());
    std::vector<at::Tensor> tensors{wrap(c.recv, c.count, type)};
    Launched launched{backend_->allreduce(tensors, options)};
    if (c.final_factor() != 1.0) launched.then = [c] { gannet::sdk::scale(c.recv, c.count, c.dtype, c.final_factor()); };
    return launched;
  }

  // 16-bit elements travel and are added as floats, and are rounded once.
  Launched launch_wide_sum(const Collective& c) {
    auto wide = std::make_shared<std::vector<float>>(c.count);
    gannet::sdk::widen(wide->data(), c.send, c.count, c.dtype);
    gannet::sdk::scale(wide->data(), c.count, GANNET_FLOAT32, c.first_factor());
    c10d::AllreduceOptions options;
    options.reduceOp = reduction(c.reduce_op, GANNET_FLOAT32);
    std::vector<at::Tensor> tensors{wrap(wide->data(), c.count, at::kFloat)};
    Launched launched{backend_->allreduce(tensors, options)};
    launched.then = [c, wide] {
      gannet::sdk::scale(wide->data(), c.count, GANNET_FLOAT32, c.final_factor());
      gannet::sdk::narrow(c.recv, wide->data(), c.count, c.dtype);
    };
    return launched;
  }

  GroupOptions options_;
  std::shared_ptr<std::atomic<bool>> aborted_;  // shared with the works: they may outlive the group
  c10::intrusive_ptr<Backend> backend_;
  std::mutex issuing_;      // c10d counts its operations without a lock, and the ring's thread issues some beside the caller's
  std::mutex making_ring_;  // against abort(), which another thread calls
  std::unique_ptr<Ring> ring_;  // made by the first reduce_scatter; it ends before what it sends by
  Messages messages_;           // likewise
};

class Alone : public Group {
 public:
  std::unique_ptr<Work> start(const Collective& collective) override {
    gannet::sdk::do_alone(collective);
    return std::make_unique<Done>();
  }
  std::unique_ptr<Work> start_many(const std::vector<Collective>& batch) override {
    for (const Collective& one : batch) gannet::sdk::do_alone(one);
    return std::make_unique<Done>();
  }
  void abort() override {}
};

}  // namespace

std::unique_ptr<Group> make_group(const GroupOptions& options) {
  if (options.size == 1) return std::make_unique<Alone>();
  return std::make_unique<Connected>(options);
}

}  // namespace gannet_gloo
