// Detects dead, late and disagreeing ranks.
//
// Every rank has a connection to rank 0, separate from the Comm, and reports each collective call
// of the public API that it enters and leaves. Rank 0 compares the calls (referee.h) and sends
// verdicts to all ranks. A process that dies closes its connection; a stopped process does not. A
// verdict ends all waits, and every later call throws it at once.
//
//   auto call = world->enter(*group, "step", 12);        // for the life of `call`; a call inside a call is part of it
//
// A per-step call only sends a note. Any other call (a barrier, a save) asks first and starts when
// all ranks are in the same call: mismatched collectives on the wire can end a process inside the
// Comm's library, before any rank can report it.
//
// One service thread per process, with all signals blocked, does the listening.
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
    std::string host;  // rank 0: its address for the others; other ranks: rank 0's address if rank 0 does not know it
    milliseconds deadline{600'000};
    milliseconds report_every{10'000};
  };
  // Rank 0 listens and publishes its address; the others connect. Throws Error(kUnavailable) if
  // they cannot.
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
    void fail() { failed_ = true; }  // the call ends in an exception that has been caught already
    // Marks threads that carry `info` as inside this call: autograd's threads during a backward
    // call.
    void carry(BackwardInfo& info);

   private:
    void wait_for_all();
    void leave(bool failed);
    Watch* watch_ = nullptr;
    ActiveCall* active_ = nullptr;           // null in a world or group of one, and in a call nested in another on this thread
    std::shared_ptr<BackwardInfo> carried_;  // holds active_ for other threads
    int exceptions_ = 0;
    bool failed_ = false;
  };

  // This rank left a joint operation of the group by an exception that the program may catch
  // (Referee::abandon).
  void abandon(const HostGroup& group, const std::string& what);
  void set_deadline(milliseconds deadline) { deadline_ = deadline; }
  void set_report_every(milliseconds every) { report_every_ = every; }
  // `abort` ends the collectives in flight, shortly after a verdict; a waiting rank may see the
  // Comm's own error first.
  void on_verdict(std::function<void()> abort);
  // This rank ends in order. Waits briefly until the others have been told; the watch is over
  // afterwards.
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
  std::string token_;  // secret of this world, unknown to strangers
  std::atomic<milliseconds> deadline_, report_every_;
  const int process_;  // a forked child must not say goodbye for its parent

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> outbox_;                // guarded by mutex_, like the members below
  std::map<std::string, uint64_t> sequences_;  // number of calls per group
  // Calls in progress, at most one per thread. A list: Call keeps a pointer to its element.
  std::list<ActiveCall> active_;
  std::set<uint32_t> connected_;  // rank 0: the connected ranks
  std::string place_;             // the latest call, as "in step() of step 12"
  std::optional<Verdict> verdict_;
  std::function<void()> abort_;
  // last_call_: when post() last refilled calls_in_hand_. verdict_at_: the abort follows shortly
  // after it.
  Instant last_call_{}, verdict_at_{};
  // A token bucket: the number of notes that may be sent immediately. post() refills one every 5
  // ms, up to 20.
  double calls_in_hand_ = 0;
  RankZero rank_zero_ = kRuns;
  // On rank 0: the other ranks. Elsewhere: rank 0. Callers send to it directly, so that a process
  // reports its place before it dies there.
  std::list<Peer> peers_;
  bool over_ = false;
  // Rank 0 is about to end, and its store with it. Set until no rank is inside a call that rank 0
  // has completed, since the outcome may be read from the store.
  bool ends_soon_ = false;
  std::atomic<bool> has_verdict_{false}, stop_{false};

  // Used only by the service thread from here on.
  // An eventfd: callers write to it to wake the service thread's poll().
  Socket wake_;
  // Rank 0's listening socket. Anyone can connect, but a peer without the token is ignored.
  Socket listener_;
  std::optional<Referee> referee_;
  // heard_: the last message from rank 0; its silence is measured from there.
  Instant next_beat_{}, heard_{}, rank_zero_ended_{};
  // rank_zero_place_: last received from rank 0. told_place_: on rank 0, its own place at the last
  // tick.
  std::string rank_zero_place_, told_place_;
  bool aborted_ = false;
  std::thread thread_;
};

}  // namespace gannet::control
