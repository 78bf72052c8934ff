// Detects dead, late and disagreeing ranks.
//
// Every rank has a connection to rank 0, separate from the Comm, and reports when it enters or
// leaves a collective call of the public API. Rank 0 compares the calls (referee.h) and sends
// verdicts to all ranks. If a process dies, its connection closes; if it is only stopped, the
// connection stays open. A verdict ends all waits, and every later call throws it immediately.
//
//   auto call = world->enter(*group, "step", 12);        // until `call` is destroyed; a nested call is a part of it
//
// A per-step call is only reported to rank 0. Any other call (a barrier, a save) asks first, and
// starts when all ranks are in the same call: mismatched collectives can end a process inside the
// Comm's library before any rank can report the mismatch.
//
// In each process, one service thread with all signals blocked receives the messages.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "control/channel.h"
#include "control/facts.h"
#include "control/referee.h"
#include "control/store.h"
#include "interfaces/host_group.h"
#include "tensor/thread_info.h"

namespace gannet::control {

class Watch : public Watcher {
  struct ActiveCall;

 public:
  struct Options {
    uint32_t rank = 0, size = 1;
    std::string host;  // rank 0: its address for the others; other ranks: rank 0's address, used if rank 0 publishes none
    milliseconds deadline{600'000};
    milliseconds report_every{10'000};
    std::vector<std::string> hosts = {};  // rank 0: each rank's machine; empty: all are on one
  };
  // Rank 0 listens and publishes its address; the others connect. Throws Error(kUnavailable) if
  // they cannot; on rank 0, Error(kTimeout) with the ranks that did not connect.
  Watch(Store& store, const Options& options);
  ~Watch() override;

  class Call {
   public:
    enum Begin { kAtOnce, kTogether };
    // `facts`: values that all ranks must agree on in this call; null: only the call itself is
    // compared.
    Call(Watch* watch, const HostGroup& group, const char* name, int64_t step, const std::string& tag, Begin begin,
         Facts* facts = nullptr);
    ~Call();
    Call(const Call&) = delete;
    void fail() { failed_ = true; }  // the call failed with an exception that was already caught
    // Marks the threads that carry `info` (autograd's threads during a backward) as inside this
    // call.
    void carry(BackwardInfo& info);

   private:
    void wait_for_all();
    void leave(bool failed);
    Watch* watch_ = nullptr;
    ActiveCall* active_ = nullptr;           // null in a world or group of one, and in a call nested in another on this thread
    std::shared_ptr<BackwardInfo> carried_;  // where other threads find active_
    int exceptions_ = 0;
    bool failed_ = false;
  };

  // Reports that this rank left a joint operation of the group by an exception that the program may
  // catch (Referee::abandon).
  void abandon(const HostGroup& group, const std::string& what);
  void set_deadline(milliseconds deadline) { deadline_ = deadline; }
  void set_report_every(milliseconds every) { report_every_ = every; }
  // Sets the function that ends the collectives in flight. It is called shortly after a verdict, so
  // a waiting rank may see the Comm's own error first.
  void on_verdict(std::function<void()> abort);
  // Reports an orderly end of this rank, and waits briefly until the report is sent; rank 0 first
  // waits for ranks inside a call that it has completed. Afterwards the watch does nothing.
  void goodbye() noexcept;

  void check() override;
  void explain(const Error& failure) override;
  milliseconds patience(milliseconds otherwise) const override;
  void begin_wait() override;
  void end_wait() override;
  static bool is_inside();  // whether this thread is in a call, or is an autograd thread of a backward call

 private:
  enum RankZero { kRuns, kGone, kDied };
  struct Peer {
    Channel channel;
    int rank = -1;  // set once the peer has identified itself
  };

  void wait_for_all();
  void end_thread();
  void serve();
  uint64_t& sequence_of(const HostGroup& group);
  void post(Message message, bool at_once);
  void flush();
  void wake();
  void look_at_waits(Instant now);
  void as_rank_zero(const std::vector<Message>& own, Instant now);
  void as_other_rank(Instant now);
  void listen_to(Peer& peer, Instant now);
  void apply(uint32_t rank, const Message& message, Instant now);
  void judge_rank_zero(Instant now);
  void lose_rank_zero(RankZero how, Instant now);
  void grant_call(const std::string& group, uint64_t sequence);
  void settle(const Verdict& verdict);
  void end_now();  // makes goodbye() stop waiting
  std::string own_place() const;

  uint32_t rank_, size_;
  std::string token_;  // a secret that only this world's ranks know
  std::atomic<milliseconds> deadline_, report_every_;
  const int process_;  // a forked child must not say goodbye for its parent

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> outbox_;                // guarded by mutex_, like the members below
  std::map<std::string, uint64_t> sequences_;  // the number of calls in each group
  // The calls in progress, at most one per thread. A list, since each Call keeps a pointer to its
  // element.
  std::list<ActiveCall> active_;
  std::set<uint32_t> connected_;  // rank 0: the connected ranks
  std::string place_;             // this rank's place: "in step() of step 12"
  std::optional<Verdict> verdict_;
  std::function<void()> abort_;
  // last_call_: when post() last refilled calls_in_hand_. verdict_at_: when the verdict arrived;
  // the abort follows shortly after.
  Instant last_call_{}, verdict_at_{};
  // A token bucket: the number of messages that may be sent immediately. post() adds one for every
  // 5 ms, up to 20.
  double calls_in_hand_ = 0;
  RankZero rank_zero_ = kRuns;
  // On rank 0: the other ranks. On any other rank: only rank 0; the calling threads send to it
  // directly, so that a process that dies in a call has already reported that call.
  std::list<Peer> peers_;
  bool over_ = false;
  // Whether rank 0 is about to end, and its store with it. It first waits until no rank is inside a
  // call that rank 0 has completed, since those ranks may still read the outcome from the store.
  bool ends_soon_ = false;
  std::atomic<bool> has_verdict_{false}, stop_{false};

  // Only the service thread uses the members from here on. The exception is the eventfd wake_:
  // other threads write to it to wake the service thread's poll().
  Socket wake_;
  // Rank 0's listening socket. Anyone can connect, but a peer without the token is ignored.
  Socket listener_;
  std::optional<Referee> referee_;
  // heard_: the time of the last message from rank 0, from which its silence is measured.
  Instant next_beat_{}, heard_{}, rank_zero_ended_{};
  // rank_zero_place_: the place that rank 0 last reported. told_place_: on rank 0, its own place at
  // the last tick.
  std::string rank_zero_place_, told_place_;
  bool aborted_ = false;
  std::thread thread_;
};

}  // namespace gannet::control
