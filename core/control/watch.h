// Living, dead, late and disagreeing ranks.
//
// Every rank holds a connection of its own to rank 0, apart from the Comm, and tells it which collective call of the public API
// it enters and leaves. Rank 0 compares (referee.h) and tells everyone what is wrong; a process that dies closes its
// connection, one that is stopped does not. A verdict wakes whoever waits, and every later call throws it at once.
//
//   auto call = world->enter(*group, "step", 12);        // for the life of `call`; a call inside a call is part of it
//
// A call of every step only leaves a note. One of the others (a barrier, a save) asks first, and begins when all ranks are in the
// same call: different collectives that meet on the wire can end a process inside the Comm's library, before anyone can speak.
//
// One service thread per process, which takes no signal, listens.
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
  struct Active;

 public:
  struct Options {
    uint32_t rank = 0, size = 1;
    std::string host;  // rank 0: its address for the others; they: where it is, when it does not know that itself
    milliseconds deadline{600'000};
    milliseconds report_every{10'000};
  };
  // Rank 0 listens and publishes where; the others connect. Throws Error(kUnavailable) when they cannot.
  Watch(Store& store, const Options& options);
  ~Watch() override;

  class Call {
   public:
    enum Begin { kAtOnce, kTogether };
    // `facts`: what all ranks must agree on in this call; null: nothing but the call itself.
    Call(Watch* watch, const HostGroup& group, const char* name, int64_t step, const std::string& tag, Begin begin,
         Facts* facts = nullptr);
    ~Call();
    Call(const Call&) = delete;
    void fail() { failed_ = true; }  // the call ends in an exception that has been caught already
    // Threads that carry `info` are in this call, too: autograd's, of the backward that it is.
    void carry(BackwardInfo& info);

   private:
    void wait_for_all();
    void leave(bool failed);
    Watch* watch_ = nullptr;
    Active* active_ = nullptr;               // null in a world or group of one, and inside another call of this thread
    std::shared_ptr<BackwardInfo> carried_;  // which holds active_ for other threads
    int exceptions_ = 0;
    bool failed_ = false;
  };

  // This rank leaves what the group does together by an exception that the program may catch (Referee::abandon).
  void abandon(const HostGroup& group, const std::string& what);
  void set_deadline(milliseconds deadline) { deadline_ = deadline; }
  void set_report_every(milliseconds every) { report_every_ = every; }
  // What ends the collectives in flight, some moments after a verdict: who waits may see the Comm's own error before.
  void on_verdict(std::function<void()> abort);
  // This rank ends as it should. Waits a moment until the others have been told; the watch is over then.
  void goodbye() noexcept;

  void check() override;
  void explain(const Error& failure) override;
  milliseconds patience(milliseconds otherwise) const override;
  void begin_wait() override;
  void end_wait() override;
  static bool is_inside();  // whether this thread is in a call, or autograd's of a backward that is one

 private:
  enum RankZero { kRuns, kGone, kDied };
  struct Peer {
    Channel channel;
    int rank = -1;  // until it has said who it is
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
  void end_now();  // goodbye() waits no more
  std::string own_place() const;

  uint32_t rank_, size_;
  std::string token_;  // of this world: strangers do not have it
  std::atomic<milliseconds> deadline_, report_every_;
  const int process_;  // a child that was forked off says no goodbye in its parent's name

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Message> outbox_;                // guarded by mutex_, as what follows
  std::map<std::string, uint64_t> sequences_;  // of each group's calls
  // Calls in progress, at most one per thread. A list: Call keeps a pointer to its element.
  std::list<Active> active_;
  std::set<uint32_t> connected_;  // rank 0: who has come
  std::string place_;             // the latest call, as "in step() of step 12"
  std::optional<Verdict> verdict_;
  std::function<void()> abort_;
  // last_call_: when post() last refilled calls_in_hand_. verdict_at_: the abort follows some moments after it.
  Instant last_call_{}, verdict_at_{};
  // A token bucket: how many notes may still be sent at once. post() refills it, one every 5 ms, up to 20.
  double calls_in_hand_ = 0;
  RankZero rank_zero_ = kRuns;
  // Rank 0: the others; elsewhere: rank 0, which callers send to as well, so that a process tells where it is before it dies
  // there.
  std::list<Peer> peers_;
  bool over_ = false;
  // Rank 0 is about to end, and the store with it: until nobody is inside a call that it has completed, whose outcome may be read
  // from there.
  bool ends_soon_ = false;
  std::atomic<bool> has_verdict_{false}, stop_{false};

  // The service thread's own from here on.
  // An eventfd: callers write to it to end the service thread's poll().
  Socket wake_;
  // Rank 0's. Anyone can connect; a peer without the token is never heard.
  Socket listener_;
  std::optional<Referee> referee_;
  // heard_: the last message from rank 0, from which its silence is measured.
  Instant next_beat_{}, heard_{}, rank_zero_ended_{};
  // rank_zero_place_: as rank 0 last sent it. told_place_: on rank 0, its own place at the last tick.
  std::string rank_zero_place_, told_place_;
  bool aborted_ = false;
  std::thread thread_;
};

}  // namespace gannet::control
