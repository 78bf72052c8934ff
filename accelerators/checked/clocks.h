// Logical clocks. Work runs immediately on the caller's thread; the clocks track the order that a
// real device would guarantee, so that a missing event is found whatever the timing.
//
// An actor is a stream, a queue, a group of ranks, or the host (all of its threads count as one).
// Each launch is a tick of its actor. An actor's clock holds, for each actor, the last tick that
// completes before the actor's next launch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gannet::accelerators::checked {

class Clock {
 public:
  void join(const Clock& other);
  bool knows(uint32_t actor, uint64_t tick) const { return actor < ticks_.size() && ticks_[actor] >= tick; }
  // Advances to the next tick of the actor and returns it.
  uint64_t advance(uint32_t actor);

 private:
  std::vector<uint64_t> ticks_;  // by actor number; missing entries are 0
};

struct Actor {
  uint32_t number;
  std::string name;  // for messages: "stream 0 of device 0", "queue 'gradients'"
  Clock clock;
};

}  // namespace gannet::accelerators::checked
