#include "group.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>

#include "backend.h"
#include "exchange.h"
#include "ring.h"

namespace gannet_gloo {
namespace {

using gannet::sdk::Failure;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

class FinishedWork : public Work {
 public:
  bool wait(uint64_t) override { return true; }
  bool is_over() override { return true; }
};

class PendingWork : public Work {
 public:
  PendingWork(LaunchedOperation launched, std::string doing, std::shared_ptr<std::atomic<bool>> aborted)
      : work_(std::move(launched.work)),
        then_(std::move(launched.then)),
        doing_(std::move(doing)),
        aborted_(std::move(aborted)) {}

  bool wait(uint64_t timeout_ms) override {
    // Waits in slices, because closing Gloo's connections does not wake a waiter on this rank:
    // between the slices the loop checks for abort().
    constexpr milliseconds kSlice{100};
    const auto deadline = steady_clock::now() + milliseconds(timeout_ms);
    while (!work_->isCompleted()) {
      if (*aborted_) throw Failure(GANNET_PEER_LOST, doing_ + " was aborted by this rank");
      const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
      if (left.count() <= 0) return false;
      try {
        work_->wait(std::min(left, kSlice));
      } catch (...) {  // either the slice expired or the work failed; checked below
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

// The ring's links to both neighbours.
class NeighbourLinks : public Link {
 public:
  NeighbourLinks(Mail& mail, uint32_t rank, uint32_t size)
      : mail_(mail), next_((rank + 1) % size), previous_((rank + size - 1) % size) {}
  std::unique_ptr<Transfer> send(const void* from, uint64_t bytes) override { return mail_.send(from, bytes, next_, kRing); }
  std::unique_ptr<Transfer> receive(void* to, uint64_t bytes) override { return mail_.receive(to, bytes, previous_, kRing); }

 private:
  Mail& mail_;
  uint32_t next_, previous_;
};

class ConnectedGroup : public Group {
 public:
  explicit ConnectedGroup(const GroupOptions& options) try
      : options_(options),
        aborted_(std::make_shared<std::atomic<bool>>(false)),
        backend_(connect(options)),
        mail_(*backend_, issuing_) {
  } catch (...) {
    throw failure_of("connecting the " + std::to_string(options.size) + " ranks of group '" + options.name + "'",
                     text_of(std::current_exception()));
  }

  ~ConnectedGroup() override {
    // A thread of an aborted backend may block in Gloo until Gloo's timeout, and the backend's
    // destructor would join it.
    if (*aborted_) backend_.release();
  }

  std::unique_ptr<Work> start(const Collective& c) override {
    const std::string doing = sentence(c);
    return begin(doing, [&]() -> std::unique_ptr<Work> {
      if (moves_nothing(c)) return std::make_unique<FinishedWork>();
      if (c.op == GANNET_REDUCE_SCATTER)
        return c.send_counts || c.sums_in_float() || c.reduce_op == GANNET_PREMULTIPLIED_SUM
                   ? exchange_and_sum(c, doing, mail_, messages_)
                   : ring(doing).start(c, doing);
      if (c.op == GANNET_SEND || c.op == GANNET_RECV || (c.op == GANNET_ALL_GATHER && c.recv_counts))
        return messages_.watch(messages_of(c, mail_), doing);
      const std::lock_guard lock(issuing_);
      return std::make_unique<PendingWork>(launch(*backend_, c), doing, aborted_);
    });
  }

  std::vector<std::unique_ptr<Work>> start_many(const std::vector<Collective>& batch) override {
    std::vector<std::unique_ptr<Work>> works;
    std::vector<Message> messages;
    const std::string doing = "a batch of " + std::to_string(batch.size()) + place();
    for (const Collective& c : batch) {
      if (c.op != GANNET_SEND && c.op != GANNET_RECV)
        works.push_back(start(c));
      else if (c.count > 0)
        begin(doing, [&]() -> std::unique_ptr<Work> {
          for (Message& message : messages_of(c, mail_)) messages.push_back(std::move(message));
          return nullptr;
        });
    }
    if (!messages.empty()) works.push_back(messages_.watch(std::move(messages), doing));
    return works;
  }

  void abort() override {
    if (aborted_->exchange(true)) return;
    try {
      backend_->close();
    } catch (...) {  // it was already closed by a failure
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

  // Runs `body` and turns c10d's exceptions into failures.
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

  Ring& ring(const std::string& doing) {
    std::lock_guard lock(making_ring_);
    if (*aborted_) throw Failure(GANNET_PEER_LOST, doing + " cannot start: the group was aborted");
    if (!ring_)
      ring_ = std::make_unique<Ring>(options_.rank, options_.size,
                                     std::make_unique<NeighbourLinks>(mail_, options_.rank, options_.size));
    return *ring_;
  }

  GroupOptions options_;
  std::shared_ptr<std::atomic<bool>> aborted_;  // shared with the works, which may outlive the group
  c10::intrusive_ptr<Backend> backend_;
  std::mutex issuing_;  // needed because the ring's thread also starts operations
  BackendMail mail_;
  std::mutex making_ring_;      // guards ring_ against abort() from another thread
  std::unique_ptr<Ring> ring_;  // made by the first reduce_scatter; destroyed before mail_, which it uses
  Messages messages_;           // also destroyed before mail_
};

class SingleRankGroup : public Group {
 public:
  std::unique_ptr<Work> start(const Collective& collective) override {
    gannet::sdk::do_alone(collective);
    return std::make_unique<FinishedWork>();
  }
  std::vector<std::unique_ptr<Work>> start_many(const std::vector<Collective>& batch) override {
    for (const Collective& one : batch) gannet::sdk::do_alone(one);
    return {};
  }
  void abort() override {}
};

}  // namespace

std::unique_ptr<Group> make_group(const GroupOptions& options) {
  if (options.size == 1) return std::make_unique<SingleRankGroup>();
  return std::make_unique<ConnectedGroup>(options);
}

}  // namespace gannet_gloo
