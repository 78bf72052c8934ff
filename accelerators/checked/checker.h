// The checker: told of every launch, copy, collective, wait and free, it reports two uses of the same bytes that nothing orders.
//
// Each function may be called from any thread. What is reported is a sdk::Failure (GANNET_INVALID_ARGUMENT: who gave the work
// forgot to order it): the table's functions return it, operators turn it into LibTorch's exception. A race that is found where
// nothing may be thrown, in a free, is thrown by the next launch.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "accesses.h"

namespace gannet::accelerators::checked {

class Checker {
 public:
  static Checker& get();  // never destroyed: tensors may outlive everything

  // ---- Who works ----
  Actor& make_actor(const std::string& name);  // lives as long as the process, or until it ends
  // Its work is over, and the host knows: the actor may be another one from now on. Its events stay as they are.
  void end(Actor& actor);
  // A text that lives as long as the process.
  const std::string* named(std::string_view text);

  // ---- What is ordered ----
  // All that the actor has been given so far; an event, and what the host knows.
  Clock record(const Actor& actor);
  void wait(Actor& actor, const Clock& clock);  // what the actor is given from now on comes behind it
  void host_waits(const Clock& clock);
  void host_learns(const Clock& clock);  // by asking, without a wait
  void host_waits_for(const Actor& actor) { host_waits(record(actor)); }
  void host_waits_for_all();

  // ---- What is done ----
  // One operation of the actor: notes its accesses, throws where one races.
  void launch(Actor& actor, std::string_view operation, std::span<const Access> accesses);
  // A block is given back by the host: a write of the actor that it was allocated for. Uses by `users` are waited for by the
  // allocator (c10's recordStream), as LibTorch's CUDA allocator does.
  void free(Actor& actor, uint64_t begin, uint64_t end, const std::vector<const Actor*>& users);
  // Pinned memory of the host, likewise.
  void free_of_host(uint64_t begin, uint64_t end, const std::vector<const Actor*>& users) { free(*host_, begin, end, users); }

  struct Counters {
    std::atomic<int64_t> launches{0}, copies{0}, collectives{0}, updates{0}, host_waits{0}, allocations{0}, allocated_bytes{0},
        races{0};
  };
  Counters& counters() { return counters_; }
  std::map<std::string, int64_t> figures() const;
  void reset();  // counters, and a report that nobody has seen yet

 private:
  Checker();
  std::string text_of(const Race& race) const;

  mutable std::mutex mutex_;  // of what follows
  std::deque<Actor> actors_;
  std::vector<Actor*> ended_;
  std::set<std::string, std::less<>> names_;
  Accesses accesses_;
  std::string unseen_;  // a race that could not be thrown; empty: none
  Actor* host_;
  Counters counters_;
};

}  // namespace gannet::accelerators::checked
