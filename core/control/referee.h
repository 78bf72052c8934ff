// Tracks the calls of all ranks, on rank 0, and derives verdicts from them. Uses no sockets and no
// clock: it receives events with timestamps, and returns verdicts and reports.
//
//   Referee referee(2, {.report_every = seconds(10)});
//   referee.group("world", {0, 1});
//   referee.enter(0, {"world", 1, "step", 12, ""}, false, now);
//   referee.enter(1, {"world", 1, "barrier", -1, ""}, true, now);
//   referee.verdict()->sentence;
//   // "the ranks make different calls: rank 1 called barrier() where rank 0 called step() of step 12; ..."
#pragma once

#include <gannet/error.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gannet::control {

using Instant = std::chrono::steady_clock::time_point;
using std::chrono::milliseconds;

// One collective call of the public API, the same on every member of the group.
struct CallSite {
  std::string group;
  uint64_t sequence = 0;  // counts the group's calls, from 1
  std::string name;       // "step"
  int64_t step = -1;      // the engine's step; -1: the call is not part of a step
  std::string tag;
  int64_t set = -1;          // the number of the engine that the facts belong to; -1: none
  uint64_t facts = 0;        // the hash of the facts
  std::string text() const;  // "step() of step 12"
  bool is_same_call(const CallSite& other) const { return name == other.name && step == other.step && tag == other.tag; }
  bool is_same_as(const CallSite& other) const { return is_same_call(other) && set == other.set && facts == other.facts; }
};

enum class CallProgress {
  kBefore,
  kInside,
  kLeft,
  kFailed
};  // before its first call; in a call; after it; after leaving it by an exception

// Returns "in step() of step 12", "after step() of step 12" or "before its first call".
std::string place_of(CallProgress stand, const CallSite& call);

// An error that concerns the whole world. Once there is a verdict, every rank receives it.
struct Verdict {
  ErrorCode code = ErrorCode::kPeerLost;
  std::string sentence, next_step;
};

struct Report {
  std::vector<uint32_t> ranks;  // the waiting ranks, which receive the line
  std::string line;
};

class Referee {
 public:
  struct Rhythm {
    milliseconds report_every{10'000};
    milliseconds silence{3'500};      // a process without a beat for this long does not count as running
    milliseconds death_settles{300};  // the verdict waits this long, so that ranks that die together are named together
    milliseconds departure_settles{
        1'500};  // the same after an orderly end, so that other ranks may still finish, or throw an error of their own
  };
  /// `hosts`: each rank's machine, for error messages; empty: all are on one.
  Referee(uint32_t world_size, Rhythm rhythm, Instant now, std::vector<std::string> hosts = {});

  void group(const std::string& name, const std::vector<uint32_t>& members);
  // `asks`: the rank starts the call only when all members have entered it (take_granted).
  void enter(uint32_t rank, const CallSite& call, bool asks, Instant now);
  // Reports changed facts, as lines "name=value": numbers on which all ranks must agree when they
  // call engine `set`.
  void facts(uint32_t rank, const std::string& group, int64_t set, const std::string& changes);
  void leave(uint32_t rank, const std::string& group, bool failed);
  // The rank has waited for others inside its call since `since`, and allows the wait to last
  // `deadline`.
  void wait(uint32_t rank, const std::string& group, Instant since, milliseconds deadline);
  void resume(uint32_t rank, const std::string& group);
  void beat(uint32_t rank, Instant now);
  // `orderly`: the rank said goodbye. Otherwise its connection broke, which means that the process
  // died.
  void end(uint32_t rank, bool orderly, Instant now);
  // The rank's communication failed, and the referee does not know why.
  void fail(uint32_t rank, const std::string& sentence);
  // The rank left a joint operation of the group by an exception that the program may catch.
  // `what`: "train() by an error: the disk is full". There is no verdict if the other ranks leave
  // the operation as well.
  void abandon(uint32_t rank, const std::string& group, const std::string& what, Instant now);

  // A call that a rank asked to start and that all members have entered since.
  struct Grant {
    uint32_t rank = 0;
    std::string group;
    uint64_t sequence = 0;
  };
  std::vector<Grant> take_granted() { return std::exchange(granted_, {}); }
  // Looks for ended ranks and passed deadlines at the time `now`, and returns report lines for
  // waiting ranks. Call it about every 100 ms.
  std::vector<Report> look(Instant now);
  const std::optional<Verdict>& verdict() const { return verdict_; }
  bool runs(uint32_t rank, Instant now) const;  // alive, and heard from recently
  // Whether a running rank is still inside a call that `rank` has completed.
  bool is_followed(uint32_t rank, Instant now) const;
  void set_report_every(milliseconds every) { rhythm_.report_every = every; }

 private:
  struct Visit {  // a rank's latest call in one group
    CallProgress stand = CallProgress::kBefore;
    CallSite call;
    uint64_t completed = 0;  // the last sequence that it left without an error
    // While the rank waits: since when, the longest allowed wait, and the number of report
    // intervals up to the last report.
    bool waits = false;
    Instant since{};
    milliseconds deadline{};
    int reports = 0;
    // The number of times that the rank left a joint operation of the group by an exception, and
    // the time and description of the last one.
    int abandoned = 0;
    Instant abandoned_at{};
    std::string abandoned_what;
  };
  using Numbers = std::map<std::string, std::string>;
  struct Rank {
    std::map<std::string, Visit> visits;                                              // by group
    std::map<std::pair<std::string, int64_t>, std::shared_ptr<const Numbers>> facts;  // by group and set
    std::string failed_in;  // the latest call that ended in an exception
    // The group of the latest enter(). The visit of this group gives the rank's place.
    std::string last_group;
    // When the rank was last heard from; every message counts as a beat.
    Instant beat{};
    // kGone: the rank said goodbye. kDied: its connection broke without a goodbye. `ended`: the
    // time at which either happened.
    enum { kRuns, kGone, kDied } life = kRuns;
    Instant ended{};
  };
  struct Entry {  // a call that not all members have entered
    CallSite call;
    uint32_t first_rank = 0;
    std::shared_ptr<const Numbers> facts;  // the facts of the first rank at its enter()
    int abandoned = 0;                     // Visit::abandoned of the first rank at its enter()
    // entered: the number of members that have entered; the entry is erased once all have. asking:
    // the ranks that wait for a grant.
    uint32_t entered = 0;
    std::vector<uint32_t> asking;
  };
  struct Group {
    std::vector<uint32_t> members;
    std::map<uint64_t, Entry> open;  // by sequence
  };

  Verdict disagreement(const Entry& entry, uint32_t rank, const CallSite& call, const Group& group) const;
  std::shared_ptr<const Numbers> facts_of(uint32_t rank, const CallSite& call) const;
  std::string named(const std::vector<uint32_t>& ranks) const;  // "ranks 1, 2 (gpu04, gpu05)", the machines without their domain
  std::string place(uint32_t rank) const;
  std::string places(const std::vector<uint32_t>& ranks) const;  // "ranks 0, 2 are in ..., rank 3 is after ..."
  std::vector<uint32_t> all_but(const std::vector<uint32_t>& ranks) const;
  std::string silence_of(const std::vector<uint32_t>& ranks, Instant now) const;
  std::vector<uint32_t> awaited(const std::string& group, uint64_t sequence, Instant now) const;
  bool is_needed(uint32_t gone) const;  // whether a rank is in a call that rank `gone` has not completed, or waits in any
  void look_for_the_dead(Instant now);
  // Sets a verdict if a rank left a joint operation by an exception while another rank, which has
  // not left it, still waits for that rank.
  void look_for_who_left(Instant now);
  Verdict verdict_of_leaving(uint32_t rank, const std::string& group) const;

  uint32_t size_;
  Rhythm rhythm_;
  std::vector<std::string> hosts_;
  std::vector<Rank> ranks_;
  std::map<std::string, Group> groups_;
  std::vector<Grant> granted_;
  // The first verdict. It is never replaced, so all ranks get the same message.
  std::optional<Verdict> verdict_;
};

}  // namespace gannet::control
