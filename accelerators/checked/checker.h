// The race checker. It sees every launch, copy, collective, wait and free, and reports unordered
// uses of the same bytes.
//
// All functions are thread-safe. A report is an sdk::Failure with GANNET_INVALID_ARGUMENT, since
// the caller failed to order its work. The plugin's API functions return it; operators turn it into
// a LibTorch exception. A race found in a free, which must not throw, is thrown by the next
// launch.
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
  static Checker& get();  // never destroyed: tensors may outlive all other objects

  // ---- Actors ----
  Actor& make_actor(const std::string& name);  // lives as long as the process, or until end() is called
  // Waits for the actor's work and releases the actor, which make_actor may then reuse. The actor's
  // events stay valid.
  void end(Actor& actor);
  // Returns a copy of the text that lives as long as the process.
  const std::string* named(std::string_view text);

  // ---- Ordering ----
  // Returns an event that covers everything the actor has launched so far and everything that the
  // host knows to be complete.
  Clock record(const Actor& actor);
  void wait(Actor& actor, const Clock& clock);  // later work of the actor is ordered after `clock`
  void host_waits(const Clock& clock);
  void host_learns(const Clock& clock);  // learned from a query, without a wait
  void host_waits_for(const Actor& actor) { host_waits(record(actor)); }
  void host_waits_for_all();

  // ---- Operations ----
  // Launches one operation of the actor and records its accesses. Throws if one of them causes a
  // race.
  void launch(Actor& actor, std::string_view operation, std::span<const Access> accesses);
  // Records that the host frees a block. This counts as a write by `actor`, the stream that owns
  // the block. Uses by `users` do not race, because the allocator waits for them (c10's
  // recordStream), as LibTorch's CUDA allocator does.
  void free(Actor& actor, uint64_t begin, uint64_t end, const std::vector<const Actor*>& users);
  // The same for pinned host memory.
  void free_of_host(uint64_t begin, uint64_t end, const std::vector<const Actor*>& users) { free(*host_, begin, end, users); }

  struct Counters {
    std::atomic<int64_t> launches{0}, copies{0}, collectives{0}, updates{0}, host_waits{0}, allocations{0}, allocated_bytes{0},
        races{0}, collective_launches{0};
  };
  Counters& counters() { return counters_; }
  std::map<std::string, int64_t> figures() const;
  void reset();  // clears the counters, and a race that has not been reported yet

 private:
  Checker();
  std::string text_of(const Race& race) const;

  mutable std::mutex mutex_;  // guards the members below
  std::deque<Actor> actors_;
  std::vector<Actor*> ended_;
  std::set<std::string, std::less<>> names_;
  Accesses accesses_;
  std::string unseen_;  // a race that could not be thrown yet; empty if there is none
  Actor* host_;
  Counters counters_;
};

}  // namespace gannet::accelerators::checked
