// Who is where: the state that rank 0 keeps of all ranks' calls, and what follows from it. No socket and no clock of its own:
// events go in with their time, verdicts and reports come out.
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

// One collective call of the public API, as every member of the group makes it.
struct CallSite {
  std::string group;
  uint64_t sequence = 0;  // counts the calls of this group, from 1
  std::string name;       // "step"
  int64_t step = -1;      // of the engine; -1: the call belongs to no step
  std::string tag;
  int64_t set = -1;          // whose facts, as "engine 0"; -1: none
  uint64_t facts = 0;        // their hash
  std::string text() const;  // "step() of step 12"
  bool is_same_call(const CallSite& other) const { return name == other.name && step == other.step && tag == other.tag; }
  bool is_same_as(const CallSite& other) const { return is_same_call(other) && set == other.set && facts == other.facts; }
};

enum class Stand { kBefore, kInside, kLeft, kFailed };  // before its first call, in a call, out of it, thrown out of it

// "in step() of step 12", "after step() of step 12", "before its first call"
std::string place_of(Stand stand, const CallSite& call);

// What is wrong with the world. Once there is one, every rank gets it.
struct Verdict {
  ErrorCode code = ErrorCode::kPeerLost;
  std::string sentence, next_step;
};

struct Report {
  std::vector<uint32_t> ranks;  // that wait, and get the line
  std::string line;
};

class Referee {
 public:
  struct Rhythm {
    milliseconds report_every{10'000};
    milliseconds silence{3'500};      // without a beat for so long, a process does not run
    milliseconds death_settles{300};  // so that ranks that die together are named together
    milliseconds departure_settles{
        1'500};  // an orderly end: who needs the rank no more may go on, who has an error of its own throws that
  };
  Referee(uint32_t world_size, Rhythm rhythm, Instant now);

  void group(const std::string& name, const std::vector<uint32_t>& members);
  // `asks`: the rank begins only when all members are in the same call (take_granted).
  void enter(uint32_t rank, const CallSite& call, bool asks, Instant now);
  // What has changed of the numbers that the rank's calls of `set` must share with the other ranks': lines "name=value".
  void facts(uint32_t rank, const std::string& group, int64_t set, const std::string& changes);
  void leave(uint32_t rank, const std::string& group, bool failed);
  // The rank waits for others inside its call since `since`, and allows the wait to last `deadline`.
  void wait(uint32_t rank, const std::string& group, Instant since, milliseconds deadline);
  void resume(uint32_t rank, const std::string& group);
  void beat(uint32_t rank, Instant now);
  // `orderly`: it said goodbye; else its connection broke, which is how a process dies.
  void end(uint32_t rank, bool orderly, Instant now);
  // Its communication failed, and nobody here knows why.
  void fail(uint32_t rank, const std::string& sentence);
  // It left what the group does together by an exception that the program may catch: "train() by an error: the disk is full".
  // Nothing follows where the others leave it, too.
  void abandon(uint32_t rank, const std::string& group, const std::string& what, Instant now);

  // Ranks that asked, and whose call all members have entered since; with what to tell them.
  struct Grant {
    uint32_t rank = 0;
    std::string group;
    uint64_t sequence = 0;
  };
  std::vector<Grant> take_granted() { return std::exchange(granted_, {}); }
  // What the time that has passed brings: lines for the ranks that wait. Call it every 100 ms or so.
  std::vector<Report> look(Instant now);
  const std::optional<Verdict>& verdict() const { return verdict_; }
  bool runs(uint32_t rank, Instant now) const;  // alive, and heard of lately
  // Someone who runs is still inside a call that `rank` has completed.
  bool is_followed(uint32_t rank, Instant now) const;
  void set_report_every(milliseconds every) { rhythm_.report_every = every; }

 private:
  struct Visit {  // a rank's latest call in one group
    Stand stand = Stand::kBefore;
    CallSite call;
    uint64_t completed = 0;  // the last sequence that it left as it should
    // While it waits: since when, for at most how long, and after how many report intervals a line was last written.
    bool waits = false;
    Instant since{};
    milliseconds deadline{};
    int reports = 0;
    // How often it left by an exception what the group does together, the last time, and what that was.
    int abandoned = 0;
    Instant abandoned_at{};
    std::string abandoned_what;
  };
  using Numbers = std::map<std::string, std::string>;
  struct Rank {
    std::map<std::string, Visit> visits;                                              // by group
    std::map<std::pair<std::string, int64_t>, std::shared_ptr<const Numbers>> facts;  // by group and set
    std::string failed_in;  // the latest call that ended in an exception
    // Group of the latest enter(), whose visit says where the rank is.
    std::string last_group;
    // When it was last heard; every message counts as a beat.
    Instant beat{};
    // kGone: it said goodbye. kDied: its connection broke before that. `ended` is the time of either.
    enum { kRuns, kGone, kDied } life = kRuns;
    Instant ended{};
  };
  struct Entry {  // a call that not all members have entered
    CallSite call;
    uint32_t first_rank = 0;
    std::shared_ptr<const Numbers> facts;  // of the first rank, as they were
    int abandoned = 0;                     // likewise
    // How many members have entered; once all have, the entry is erased. `asking`: those that wait for a grant.
    uint32_t entered = 0;
    std::vector<uint32_t> asking;
  };
  struct Group {
    std::vector<uint32_t> members;
    std::map<uint64_t, Entry> open;  // by sequence
  };

  Verdict disagreement(const Entry& entry, uint32_t rank, const CallSite& call, const Group& group) const;
  std::shared_ptr<const Numbers> facts_of(uint32_t rank, const CallSite& call) const;
  std::string place(uint32_t rank) const;
  std::string places(const std::vector<uint32_t>& ranks) const;  // "ranks 0, 2 are in ..., rank 3 is after ..."
  std::vector<uint32_t> all_but(const std::vector<uint32_t>& ranks) const;
  std::string silence_of(const std::vector<uint32_t>& ranks, Instant now) const;
  std::vector<uint32_t> awaited(const std::string& group, uint64_t sequence, Instant now) const;
  bool is_needed(uint32_t gone) const;  // someone is in a call that this rank will never complete
  void look_for_the_dead(Instant now);
  // Someone waits for a rank that left by an exception what it has not left itself.
  void look_for_who_left(Instant now);
  Verdict verdict_of_leaving(uint32_t rank, const std::string& group) const;

  uint32_t size_;
  Rhythm rhythm_;
  std::vector<Rank> ranks_;
  std::map<std::string, Group> groups_;
  std::vector<Grant> granted_;
  // The first that was found. It is never replaced, so all ranks get the same sentence.
  std::optional<Verdict> verdict_;
};

}  // namespace gannet::control
