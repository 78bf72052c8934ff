// Logical time. Work runs at once, on the thread that gives it; what the device would order is counted here, so that a missing
// event is found whatever the timing.
//
// Whoever works is an actor: a stream, a queue, a group of ranks, and the host, all of whose threads are one. A launch is a tick
// of its actor. An actor's clock says which ticks of each actor are over before whatever it is given next.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gannet::accelerators::checked {

class Clock {
 public:
  void join(const Clock& other);
  bool knows(uint32_t actor, uint64_t tick) const { return actor < ticks_.size() && ticks_[actor] >= tick; }
  // The next tick of the actor.
  uint64_t advance(uint32_t actor);

 private:
  std::vector<uint64_t> ticks_;  // by actor; those that are missing are 0
};

struct Actor {
  uint32_t number;
  std::string name;  // for messages: "stream 0 of device 0", "queue 'gradients'"
  Clock clock;
};

}  // namespace gannet::accelerators::checked
