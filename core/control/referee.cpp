#include "control/referee.h"

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "control/rendezvous.h"

namespace gannet::control {
namespace {

std::string whole_seconds(std::chrono::steady_clock::duration time) {
  return formatted("{} s", std::chrono::round<std::chrono::seconds>(time).count());
}

const char* are(size_t count) { return count == 1 ? " is " : " are "; }
const char* have(size_t count) { return count == 1 ? " has " : " have "; }

}  // namespace

std::string CallSite::text() const {
  return formatted("{}(){}{}", name, step >= 0 ? formatted(" of step {}", step) : "",
                   tag.empty() ? "" : formatted(" with tag '{}'", tag));
}

std::string place_of(CallProgress stand, const CallSite& call) {
  switch (stand) {
    case CallProgress::kInside:
      return formatted("in {}", call.text());
    case CallProgress::kLeft:
      return formatted("after {}", call.text());
    case CallProgress::kFailed:
      return formatted("after an error in {}", call.text());
    case CallProgress::kBefore:
      break;
  }
  return "before its first call";
}

Referee::Referee(uint32_t world_size, Rhythm rhythm, Instant now, std::vector<std::string> hosts)
    : size_(world_size), rhythm_(rhythm), hosts_(std::move(hosts)), ranks_(world_size) {
  for (Rank& rank : ranks_) rank.beat = now;
}

void Referee::group(const std::string& name, const std::vector<uint32_t>& members) {
  Group& group = groups_[name];
  if (group.members.empty()) group.members = members;
}

void Referee::enter(uint32_t rank, const CallSite& call, bool asks, Instant now) {
  Rank& self = ranks_[rank];
  self.beat = now;
  self.last_group = call.group;
  Visit& visit = self.visits[call.group];
  visit.stand = CallProgress::kInside;
  visit.call = call;
  visit.waits = false;
  visit.reports = 0;

  Group& group = groups_[call.group];
  Entry& entry =
      group.open.try_emplace(call.sequence, Entry{call, rank, facts_of(rank, call), visit.abandoned, 0, {}}).first->second;
  if (entry.abandoned != visit.abandoned && !verdict_)
    verdict_ = verdict_of_leaving(visit.abandoned > entry.abandoned ? rank : entry.first_rank, call.group);
  if (!entry.call.is_same_as(call) && !verdict_) verdict_ = disagreement(entry, rank, call, group);
  if (asks) entry.asking.push_back(rank);
  if (++entry.entered < group.members.size()) return;
  if (!verdict_)
    for (const uint32_t asking : entry.asking) granted_.push_back({asking, call.group, call.sequence});
  group.open.erase(call.sequence);
}

void Referee::facts(uint32_t rank, const std::string& group, int64_t set, const std::string& changes) {
  auto& known = ranks_[rank].facts[{group, set}];
  auto numbers = known ? std::make_shared<Numbers>(*known) : std::make_shared<Numbers>();  // an open call keeps the old ones
  for (const std::string& line : split(changes, '\n'))
    if (const size_t sign = line.rfind('='); sign != std::string::npos) (*numbers)[line.substr(0, sign)] = line.substr(sign + 1);
  known = std::move(numbers);
}

std::shared_ptr<const Referee::Numbers> Referee::facts_of(uint32_t rank, const CallSite& call) const {
  const auto found = ranks_[rank].facts.find({call.group, call.set});
  return found == ranks_[rank].facts.end() ? std::make_shared<const Numbers>() : found->second;
}

Verdict Referee::disagreement(const Entry& entry, uint32_t rank, const CallSite& call, const Group& group) const {
  const std::string mine = name_ranks({rank}), theirs = name_ranks({entry.first_rank});
  std::string failed;
  for (const uint32_t one : {rank, entry.first_rank})
    if (!ranks_[one].failed_in.empty())
      failed += formatted("; an error that {} caught had ended its {}", name_ranks({one}), ranks_[one].failed_in);
  if (!entry.call.is_same_call(call))
    return {ErrorCode::kMismatch,
            formatted("the ranks make different calls: {} called {} where {} called {}; {}{}", mine, call.text(), theirs,
                      entry.call.text(), places(group.members), failed),
            "all ranks of a group make the same collective calls in the same order: look for a call that only some "
            "ranks make, or for a rank whose data ended before the others'"};
  if (entry.call.set != call.set)
    return {ErrorCode::kMismatch,
            formatted("the ranks call different engines: {} called {} of its engine {} where {} called that of its engine {}{}",
                      mine, call.text(), call.set, theirs, entry.call.set, failed),
            "make the same calls of the same engines in the same order on every rank"};
  std::vector<std::string> parts;
  const auto own = facts_of(rank, call);
  for (const auto& [name, value] : *own)
    if (const auto other = entry.facts->find(name); other == entry.facts->end() || other->second != value)
      parts.push_back(formatted("{} is {} on {} and {} on {}", name, value, mine,
                                other == entry.facts->end() ? "unknown" : other->second, theirs));
  return {ErrorCode::kMismatch,
          formatted("the ranks differ in {}: {}{}", call.text(), parts.empty() ? "in what they were told" : join(parts, ", "),
                    failed),
          "give every rank the same numbers and make the same calls on it; what only one rank knows is sent to the others first "
          "(engine->mean)"};
}

void Referee::leave(uint32_t rank, const std::string& group, bool failed) {
  Visit& visit = ranks_[rank].visits[group];
  visit.stand = failed ? CallProgress::kFailed : CallProgress::kLeft;
  if (failed) ranks_[rank].failed_in = visit.call.text();
  if (!failed) visit.completed = visit.call.sequence;
  visit.waits = false;
}

void Referee::wait(uint32_t rank, const std::string& group, Instant since, milliseconds deadline) {
  Visit& visit = ranks_[rank].visits[group];
  visit.waits = true;
  visit.since = since;
  visit.deadline = deadline;
  visit.reports = 0;
}

void Referee::resume(uint32_t rank, const std::string& group) { ranks_[rank].visits[group].waits = false; }

void Referee::beat(uint32_t rank, Instant now) { ranks_[rank].beat = now; }

bool Referee::runs(uint32_t rank, Instant now) const {
  return ranks_[rank].life == Rank::kRuns && now - ranks_[rank].beat < rhythm_.silence;
}

bool Referee::is_followed(uint32_t rank, Instant now) const {
  for (const auto& [name, own] : ranks_[rank].visits)
    for (uint32_t other = 0; other < size_; ++other) {
      const auto at = ranks_[other].visits.find(name);
      if (other == rank || at == ranks_[other].visits.end() || !runs(other, now)) continue;
      if (at->second.stand == CallProgress::kInside && at->second.call.sequence <= own.completed) return true;
    }
  return false;
}

void Referee::end(uint32_t rank, bool orderly, Instant now) {
  Rank& self = ranks_[rank];
  if (self.life != Rank::kRuns) return;  // it has already ended: the connection also closes after a goodbye
  self.life = orderly ? Rank::kGone : Rank::kDied;
  self.ended = now;
}

void Referee::fail(uint32_t rank, const std::string& sentence) {
  if (verdict_) return;
  verdict_ = Verdict{ErrorCode::kPeerLost,
                     formatted("the communication of rank {}, which is {}, failed: {}", rank, place(rank), sentence),
                     "see that rank's output and the network between the ranks' machines"};
}

void Referee::abandon(uint32_t rank, const std::string& group, const std::string& what, Instant now) {
  Visit& visit = ranks_[rank].visits[group];
  ++visit.abandoned;
  visit.abandoned_at = now;
  visit.abandoned_what = what;
}

Verdict Referee::verdict_of_leaving(uint32_t rank, const std::string& group) const {
  const std::string others = places(all_but({rank}));
  return {ErrorCode::kPeerLost,
          formatted("{} has left {}{}", named({rank}), ranks_[rank].visits.at(group).abandoned_what,
                    others.empty() ? "" : formatted(" ({})", others)),
          "see that rank's error; what may fail on a single rank is caught before it ends a call that all ranks make"};
}

// A rank that left does not count as needed in a call that it had completed before: the ranks that
// wait in such a call may still receive its data.
void Referee::look_for_who_left(Instant now) {
  for (const auto& [name, group] : groups_)
    for (const uint32_t rank : group.members) {
      const auto at = ranks_[rank].visits.find(name);
      if (at == ranks_[rank].visits.end() || at->second.abandoned == 0) continue;
      const Visit& self = at->second;
      for (const uint32_t one : group.members) {
        const auto other = ranks_[one].visits.find(name);
        if (other == ranks_[one].visits.end() || ranks_[one].life != Rank::kRuns) continue;
        const Visit& visit = other->second;
        const bool needs_it = visit.waits && visit.abandoned < self.abandoned && visit.call.sequence > self.completed;
        if (needs_it && now - std::max(visit.since, self.abandoned_at) >= rhythm_.departure_settles) {
          verdict_ = verdict_of_leaving(rank, name);
          return;
        }
      }
    }
}

std::string Referee::named(const std::vector<uint32_t>& ranks) const {
  std::vector<std::string> hosts;
  for (const uint32_t rank : ranks)
    if (!hosts_.empty() && std::find(hosts.begin(), hosts.end(), hosts_[rank]) == hosts.end()) hosts.push_back(hosts_[rank]);
  return name_ranks(ranks) + (hosts.empty() ? "" : formatted(" ({})", join(hosts, ", ")));
}

std::string Referee::place(uint32_t rank) const {
  const Rank& self = ranks_[rank];
  const auto at = self.visits.find(self.last_group);
  return at == self.visits.end() ? place_of(CallProgress::kBefore, {}) : place_of(at->second.stand, at->second.call);
}

std::string Referee::places(const std::vector<uint32_t>& ranks) const {
  std::vector<std::pair<std::string, std::vector<uint32_t>>> parts;  // places and the ranks there, ordered by first rank
  for (const uint32_t rank : ranks) {
    const std::string here = place(rank);
    auto at = std::find_if(parts.begin(), parts.end(), [&](const auto& part) { return part.first == here; });
    if (at == parts.end()) at = parts.insert(at, {here, {}});
    at->second.push_back(rank);
  }
  std::vector<std::string> texts;
  for (const auto& [where, who] : parts) texts.push_back(name_ranks(who) + are(who.size()) + where);
  return join(texts, ", ");
}

std::vector<uint32_t> Referee::all_but(const std::vector<uint32_t>& ranks) const {
  std::vector<uint32_t> rest;
  for (uint32_t rank = 0; rank < size_; ++rank)
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end() && ranks_[rank].life == Rank::kRuns) rest.push_back(rank);
  return rest;
}

std::string Referee::silence_of(const std::vector<uint32_t>& ranks, Instant now) const {
  std::vector<uint32_t> silent;
  Instant last = now;
  for (const uint32_t rank : ranks) {
    if (now - ranks_[rank].beat < rhythm_.silence) continue;
    silent.push_back(rank);
    last = std::min(last, ranks_[rank].beat);
  }
  if (silent.empty()) return "";
  return formatted("; {}{}given no sign of life for {}: the process is stopped, or its machine is out of reach or overloaded",
                   name_ranks(silent), have(silent.size()), whole_seconds(now - last));
}

// The members that have not arrived in the call, have arrived but do not wait in it, or are silent.
// Empty if only the network delays the call.
std::vector<uint32_t> Referee::awaited(const std::string& group, uint64_t sequence, Instant now) const {
  std::vector<uint32_t> late;
  for (const uint32_t rank : groups_.at(group).members) {
    const auto at = ranks_[rank].visits.find(group);
    const bool waits_too = at != ranks_[rank].visits.end() && at->second.waits && at->second.call.sequence == sequence &&
                           now - ranks_[rank].beat < rhythm_.silence;
    if (!waits_too) late.push_back(rank);
  }
  return late;
}

bool Referee::is_needed(uint32_t gone) const {
  for (const auto& [name, group] : groups_) {
    if (std::find(group.members.begin(), group.members.end(), gone) == group.members.end()) continue;
    const auto own = ranks_[gone].visits.find(name);
    const uint64_t completed = own == ranks_[gone].visits.end() ? 0 : own->second.completed;
    for (const uint32_t rank : group.members) {
      const auto other = ranks_[rank].visits.find(name);
      if (other == ranks_[rank].visits.end() || ranks_[rank].life != Rank::kRuns) continue;
      const Visit& visit = other->second;
      // A rank that waits in a call that the gone rank has completed may still receive its data,
      // but only for a short time (departure_settles).
      const bool waits_in_vain = visit.call.sequence > completed || visit.waits;
      if (visit.stand == CallProgress::kInside && waits_in_vain) return true;
    }
  }
  return false;
}

void Referee::look_for_the_dead(Instant now) {
  std::vector<uint32_t> died, gone;
  bool settled = false;
  for (uint32_t rank = 0; rank < size_; ++rank) {
    const Rank& self = ranks_[rank];
    if (self.life == Rank::kDied) {
      died.push_back(rank);
      settled = settled || now - self.ended >= rhythm_.death_settles;
    } else if (self.life == Rank::kGone && is_needed(rank)) {
      gone.push_back(rank);
      settled = settled || now - self.ended >= rhythm_.departure_settles;
    }
  }
  if (!settled) return;
  std::vector<std::string> parts;
  for (const uint32_t rank : died) parts.push_back(formatted("{} has died {}", named({rank}), place(rank)));
  for (const uint32_t rank : gone) parts.push_back(formatted("{} has ended {}", named({rank}), place(rank)));
  std::vector<uint32_t> ended = died;
  ended.insert(ended.end(), gone.begin(), gone.end());
  const std::string others = places(all_but(ended));
  verdict_ = Verdict{
      ErrorCode::kPeerLost, join(parts, ", ") + (others.empty() ? "" : formatted("; {}", others)),
      died.empty()
          ? "all ranks make the same calls and end together: see why that rank had nothing more to do, or what error it threw"
          : "see the end of that rank's own output, and whether a signal or the lack of memory ended it"};
}

std::vector<Report> Referee::look(Instant now) {
  std::vector<Report> reports;
  if (!verdict_) look_for_who_left(now);
  if (!verdict_) look_for_the_dead(now);
  if (verdict_) return reports;
  for (auto& [name, group] : groups_) {
    // The waiting ranks, by the sequence number of the call.
    std::map<uint64_t, std::vector<uint32_t>> waiting;
    for (const uint32_t rank : group.members) {
      const auto at = ranks_[rank].visits.find(name);
      if (at != ranks_[rank].visits.end() && at->second.waits) waiting[at->second.call.sequence].push_back(rank);
    }
    for (const auto& [sequence, ranks] : waiting) {
      const auto longest = *std::min_element(ranks.begin(), ranks.end(), [&](uint32_t a, uint32_t b) {
        return ranks_[a].visits[name].since < ranks_[b].visits[name].since;
      });
      Visit& visit = ranks_[longest].visits[name];
      const auto waited = now - visit.since;
      const std::vector<uint32_t> late = awaited(name, sequence, now);
      const std::string place = visit.call.text(), lasted = whole_seconds(waited), who = name_ranks(ranks);
      if (waited >= visit.deadline) {
        verdict_ =
            Verdict{ErrorCode::kTimeout,
                    (late.empty() ? formatted("all ranks have waited in {} for {}, and nothing arrives", place, lasted)
                                  : formatted("{}{}{}{}waited in {} for {}, the deadline; {}{}", named(late),
                                              late.size() == 1 ? " is late: " : " are late: ", who, have(ranks.size()), place,
                                              lasted, places(late), silence_of(late, now))),
                    late.empty() ? "look at the network between the ranks' machines"
                                 : "see what keeps it; \"gannet\": {\"deadline_seconds\": ...} in the config allows more time"};
        return reports;
      }
      if (waited < rhythm_.report_every * (visit.reports + 1)) continue;
      visit.reports = static_cast<int>(waited / rhythm_.report_every);
      reports.push_back(
          {ranks, formatted("waiting in {} ({} of {}){}", place, lasted, whole_seconds(visit.deadline),
                            late.empty() ? ": all ranks are there, and nothing arrives"
                                         : formatted(" for {}: {}{}", named(late), places(late), silence_of(late, now)))});
    }
  }
  return reports;
}

}  // namespace gannet::control
