// Who read and wrote which bytes last: the memory of the checker.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "clocks.h"

namespace gannet::accelerators::checked {

// Bytes that an operation reads or writes, by device address or address of the host.
struct Access {
  uint64_t begin, end;
  bool writes;
};

// One operation of an actor. `operation` lives as long as the process (Checker::named).
struct Moment {
  const Actor* actor;
  uint64_t tick;
  const std::string* operation;
};

// Two operations on the same bytes, at least one of which writes, that nothing orders.
struct Race {
  Moment earlier, later;
  bool earlier_writes, later_writes;
  uint64_t begin, end;  // bytes that both use
};

class Accesses {
 public:
  // Notes the access, and returns the first operation that it races with. `known`: what is over before it.
  std::optional<Race> note(const Access& access, const Moment& now, const Clock& known);
  // The same question alone; operations of `except` do not count.
  std::optional<Race> find(const Access& access, const Moment& now, const Clock& known,
                           const std::vector<const Actor*>& except = {}) const;
  void forget(uint64_t begin, uint64_t end);
  // Forgets what `known` knows, where nothing can race with it any more, if much has come together since the last time.
  void sweep(const Clock& known);
  void clear() { segments_.clear(); }

 private:
  struct Segment {
    uint64_t end;
    Moment write{nullptr, 0, nullptr};  // the last one; no actor: none
    std::vector<Moment> reads;          // since then, the last of each actor
  };
  using Segments = std::map<uint64_t, Segment>;  // by begin; they do not overlap
  Segments::iterator cut(uint64_t at);           // the first segment that begins at or behind `at`, which lies in none then
  static std::optional<Race> race_with(const Segment& segment, uint64_t begin, const Access& access, const Moment& now,
                                       const Clock& known, const std::vector<const Actor*>& except);

  Segments segments_;
  size_t sweep_at_ = 4096;
};

}  // namespace gannet::accelerators::checked
