// The last reads and writes of each byte, from which the checker finds races.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "clocks.h"

namespace gannet::accelerators::checked {

// A range of bytes that an operation reads or writes, given by device or host address.
struct Access {
  uint64_t begin, end;
  bool writes;
};

// One operation of an actor. `operation` stays valid for the life of the process (Checker::named).
struct ActorOperation {
  const Actor* actor;
  uint64_t tick;
  const std::string* operation;
};

// Two unordered operations on the same bytes, at least one of which is a write.
struct Race {
  ActorOperation earlier, later;
  bool earlier_writes, later_writes;
  uint64_t begin, end;  // the overlapping bytes
};

class Accesses {
 public:
  // Records the access. Returns its first race, if any. `known` covers all operations that
  // completed before the access.
  std::optional<Race> note(const Access& access, const ActorOperation& now, const Clock& known);
  // Like note, but records nothing and ignores operations of the actors in `except`.
  std::optional<Race> find(const Access& access, const ActorOperation& now, const Clock& known,
                           const std::vector<const Actor*>& except = {}) const;
  void forget(uint64_t begin, uint64_t end);
  // Forgets operations that are complete according to `known`, because nothing can race with them.
  // Does so only if many segments have accumulated since the last time.
  void sweep(const Clock& known);
  void clear() { segments_.clear(); }

 private:
  struct Segment {
    uint64_t end;
    ActorOperation write{nullptr, 0, nullptr};  // the last write; a null actor means that there was none
    std::vector<ActorOperation> reads;          // the last read of each actor since the last write
  };
  using Segments = std::map<uint64_t, Segment>;  // keyed by start address; segments do not overlap
  Segments::iterator cut(uint64_t at);           // returns the first segment at or after `at`, splitting one that contains `at`
  static std::optional<Race> race_with(const Segment& segment, uint64_t begin, const Access& access, const ActorOperation& now,
                                       const Clock& known, const std::vector<const Actor*>& except);

  Segments segments_;
  size_t sweep_at_ = 4096;
};

}  // namespace gannet::accelerators::checked
