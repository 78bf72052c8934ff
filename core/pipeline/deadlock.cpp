#include "pipeline/deadlock.h"

#include <gannet/error.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_set>

#include "base/format.h"
#include "pipeline/flow.h"

namespace gannet::pipeline {
namespace {

// The kind of result, and the direction: 1 to the next rank, -1 to the previous one, or 0 and both
// ranks if they are not neighbours.
using LaneKey = std::tuple<Result::Kind, int, uint32_t, uint32_t>;

LaneKey lane_of(const Message& message) {
  if (message.to == message.from + 1) return {message.result.kind, 1, 0, 0};
  if (message.from == message.to + 1) return {message.result.kind, -1, 0, 0};
  return {message.result.kind, 0, message.from, message.to};
}

class Rendezvous {
 public:
  explicit Rendezvous(const Schedule& schedule) : schedule_(schedule), ranks_(schedule.ranks()) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) moved = advance(rank) || moved;
      for (Rank& rank : ranks_)
        for (auto& [key, lane] : rank.lanes) moved = deliver(key, lane) || moved;
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      if (!is_done(rank)) report(rank);
  }

 private:
  struct Rank {
    size_t next = 0;                               // index of its next action
    bool has_posted = false;                       // the receive for that action is in its lane
    std::map<LaneKey, std::deque<Message>> lanes;  // the rank's sends and receives, in order
  };

  bool is_done(size_t rank) const { return ranks_[rank].next == schedule_.actions[rank].size(); }
  const Action& action_of(size_t rank) const { return schedule_.actions[rank][ranks_[rank].next]; }

  // Runs the actions of a rank up to the first that must wait.
  bool advance(size_t rank) {
    Rank& here = ranks_[rank];
    bool moved = false;
    for (; !is_done(rank); ++here.next, here.has_posted = false, moved = true) {
      const Action& action = action_of(rank);
      const std::optional<Message> message = received_by(schedule_, action);
      if (message && !here.has_posted) {
        here.lanes[lane_of(*message)].push_back(*message);
        here.has_posted = moved = true;
      }
      if (message && !received_.contains(message->result)) break;
      for (const Result& need : needs_of(schedule_, action))
        if (schedule_.rank_of[need.part] == rank && !computed_.contains(need)) return moved;
      computed_.insert(result_of(action));
      if (const auto sent = sent_by(schedule_, action)) here.lanes[lane_of(*sent)].push_back(*sent);
    }
    return moved;
  }

  // Delivers messages at the head of a lane while the receiver has the same message at its head.
  bool deliver(const LaneKey& key, std::deque<Message>& lane) {
    bool moved = false;
    while (!lane.empty()) {
      const Message& message = lane.front();
      std::deque<Message>& other = ranks_[message.to].lanes[key];
      if (&other == &lane || other.empty() || other.front().result != message.result) break;
      received_.insert(message.result);
      other.pop_front();
      lane.pop_front();
      moved = true;
    }
    return moved;
  }

  // The rank that this one waits for, and why.
  std::pair<size_t, std::string> awaited_by(size_t rank) const {
    const Action& action = action_of(rank);
    const auto message = received_by(schedule_, action);
    const std::string place = formatted("rank {} waits at position {}, {}", rank, ranks_[rank].next + 1, to_text(action));
    if (!message) return {rank, formatted("{}, for a result of its own", place)};
    const std::string what = formatted("{}, for {} from rank {}", place, to_text(message->result), message->from);
    if (!computed_.contains(message->result)) return {message->from, what};
    const Message& ahead = ranks_[message->from].lanes.at(lane_of(*message)).front();
    if (ahead.result == message->result) {  // another message is first in the receiver's lane
      const Message& own = ranks_[rank].lanes.at(lane_of(*message)).front();
      return {own.to == rank ? own.from : own.to,
              formatted("{}, after its send of {} to rank {}", what, to_text(own.result), own.to)};
    }
    return {ahead.to == message->from ? ahead.from : ahead.to,
            formatted("{}, which is sent after {} to rank {}", what, to_text(ahead.result), ahead.to)};
  }

  [[noreturn]] void report(size_t rank) const {
    std::vector<size_t> path;  // from a blocked rank, until a rank repeats
    while (std::find(path.begin(), path.end(), rank) == path.end() && !is_done(rank)) {
      path.push_back(rank);
      rank = awaited_by(rank).first;
    }
    auto first = std::find(path.begin(), path.end(), rank);
    if (first == path.end()) first = path.begin();
    std::rotate(first, std::min_element(first, path.end()), path.end());
    std::string text;
    for (auto one = first; one != path.end(); ++one) text += formatted("{}{}", text.empty() ? "" : "; ", awaited_by(*one).second);
    throw Error(ErrorCode::kConfig, formatted("the schedule is a deadlock: {}", text),
                "move one of these actions after what it waits for");
  }

  const Schedule& schedule_;
  std::vector<Rank> ranks_;
  std::unordered_set<Result, ResultHash> computed_, received_;
};

}  // namespace

void check_deadlock(const Schedule& schedule) { Rendezvous(schedule).run(); }

}  // namespace gannet::pipeline
