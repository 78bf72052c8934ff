#include "pipeline/search.h"

#include <gannet/error.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <optional>

#include "base/format.h"
#include "base/text.h"
#include "pipeline/built_in.h"

namespace gannet::pipeline {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kMostLooks = 1 << 22;

// How a rank chooses its next action.
struct Habit {
  int64_t most_alive = 1;   // (part, micro-batch) pairs
  bool splits = true;       // I and W, else B
  bool alternates = false;  // after a backward, a forward comes first
  double patience = 0;      // a weight pass begins if nothing is due within this fraction of its duration
};

// Makes an order by simulation: whenever a rank is free, it runs a pass that is ready.
class Maker {
 public:
  Maker(const std::vector<uint32_t>& rank_of, int64_t micro_batches, const Times& times, const Habit& habit)
      : rank_of_(rank_of),
        micro_batches_(micro_batches),
        times_(times),
        habit_(habit),
        ranks_(1 + *std::max_element(rank_of.begin(), rank_of.end())),
        parts_(rank_of.size()) {
    for (uint32_t part = 0; part < rank_of.size(); ++part) {
      ranks_[rank_of[part]].parts.push_back(part);
      parts_[part].forward_end.reserve(static_cast<size_t>(micro_batches));
      parts_[part].input_end.reserve(static_cast<size_t>(micro_batches));
    }
  }

  /// Returns whether it made an order; false if ranks with this habit deadlock.
  bool run() {
    for (;;) {
      // The rank that can decide earliest is next: later actions of the others cannot change what it sees.
      Rank* first = nullptr;
      double at = kNever;
      for (Rank& rank : ranks_)
        if (const double decides = is_done(rank) ? kNever : decides_at(rank); decides < at) {
          at = decides;
          first = &rank;
        }
      if (!first) break;
      first->free_at = at;
      if (!act(*first)) first->free_at = next_arrival(*first);
    }
    for (const Rank& rank : ranks_)
      if (!is_done(rank)) return false;
    return true;
  }
  /// The end of the step in this simulation. Ranks that follow the order may finish earlier.
  double total() const {
    double total = 0;
    for (const Rank& rank : ranks_) total = std::max(total, rank.free_at);
    return total;
  }
  Schedule schedule() const {
    Schedule schedule{{}, rank_of_};
    for (const Rank& rank : ranks_) schedule.actions.push_back(rank.actions);
    return schedule;
  }

 private:
  struct Rank {
    std::vector<uint32_t> parts;
    std::vector<Action> actions;
    std::deque<Action> weights;  // pending weight passes
    double free_at = 0;
    int64_t alive = 0, ended = 0;
    bool was_backward = false;
  };
  struct PartProgress {
    std::vector<double> forward_end, input_end;  // [micro-batches so far]
  };

  bool is_done(const Rank& rank) const { return rank.ended == micro_batches_ * std::ssize(rank.parts); }

  // When the next forward of a part can begin; kNever: it is not known yet, or there is none.
  double forward_at(uint32_t part) const {
    const size_t next = parts_[part].forward_end.size();
    if (next == static_cast<size_t>(micro_batches_)) return kNever;
    if (part == 0) return 0;
    const auto& before = parts_[part - 1].forward_end;
    return next < before.size() ? before[next] + link(part - 1, part) : kNever;
  }
  double backward_at(uint32_t part) const {
    const size_t next = parts_[part].input_end.size();
    if (next >= parts_[part].forward_end.size()) return kNever;
    if (part + 1 == parts_.size()) return parts_[part].forward_end[next];
    const auto& after = parts_[part + 1].input_end;
    return next < after.size() ? after[next] + link(part + 1, part) : kNever;
  }
  double link(uint32_t from, uint32_t to) const { return rank_of_[from] == rank_of_[to] ? 0 : times_.link; }

  // An early part's forward must leave slots for the rank's later parts, or no backward can run.
  bool has_room(const Rank& rank, size_t index) const {
    return rank.alive + std::ssize(rank.parts) - static_cast<int64_t>(index) <= habit_.most_alive;
  }

  double next_arrival(const Rank& rank) const {
    double next = kNever;
    for (size_t i = 0; i < rank.parts.size(); ++i) {
      if (const double at = backward_at(rank.parts[i]); at > rank.free_at) next = std::min(next, at);
      if (const double at = forward_at(rank.parts[i]); at > rank.free_at && has_room(rank, i)) next = std::min(next, at);
    }
    return next;
  }

  // The last of the rank's parts with a forward that is ready: it is closest to its backward.
  const uint32_t* ready_forward(const Rank& rank) const {
    for (size_t i = rank.parts.size(); i-- > 0;)
      if (forward_at(rank.parts[i]) <= rank.free_at && has_room(rank, i)) return &rank.parts[i];
    return nullptr;
  }
  const uint32_t* ready_backward(const Rank& rank) const {
    const uint32_t* found = nullptr;
    for (const uint32_t& part : rank.parts)
      if (backward_at(part) <= rank.free_at && (!found || backward_at(part) < backward_at(*found))) found = &part;
    return found;
  }

  double decides_at(const Rank& rank) const {
    if (!rank.weights.empty() || ready_forward(rank) || ready_backward(rank)) return rank.free_at;
    return next_arrival(rank);
  }

  bool act(Rank& rank) {
    const uint32_t* const forward = ready_forward(rank);
    const uint32_t* const backward = ready_backward(rank);
    if (backward && !(habit_.alternates && rank.was_backward && forward)) return run_backward(rank, *backward);
    if (forward) return run_forward(rank, *forward);
    if (rank.weights.empty()) return false;
    const Action weight = rank.weights.front();
    const double duration = times_.of_part[weight.part].weight;
    if (next_arrival(rank) < rank.free_at + habit_.patience * duration) return false;
    rank.weights.pop_front();
    add(rank, weight, duration);
    --rank.alive;
    ++rank.ended;
    return true;
  }

  double add(Rank& rank, const Action& action, double duration) {
    rank.actions.push_back(action);
    return rank.free_at += duration;
  }
  bool run_forward(Rank& rank, uint32_t part) {
    auto& ends = parts_[part].forward_end;
    ends.push_back(add(rank, {Action::kForward, part, std::ssize(ends)}, times_.of_part[part].forward));
    ++rank.alive;
    rank.was_backward = false;
    return true;
  }
  bool run_backward(Rank& rank, uint32_t part) {
    auto& ends = parts_[part].input_end;
    const int64_t micro_batch = std::ssize(ends);
    const PassTimes& times = times_.of_part[part];
    rank.was_backward = true;
    if (habit_.splits) {
      ends.push_back(add(rank, {Action::kInput, part, micro_batch}, times.input));
      rank.weights.push_back({Action::kWeight, part, micro_batch});
      return true;
    }
    ends.push_back(add(rank, {Action::kBackward, part, micro_batch}, times.input + times.weight));
    --rank.alive;
    ++rank.ended;
    return true;
  }

  const std::vector<uint32_t>& rank_of_;
  const int64_t micro_batches_;
  const Times& times_;
  const Habit habit_;
  std::vector<Rank> ranks_;
  std::vector<PartProgress> parts_;
};

// Keeps the best of the schedules offered to it.
class Best {
 public:
  explicit Best(std::optional<double> memory) : memory_(memory) {}

  void offer(const std::string& name, Schedule schedule, const Times& times) {
    FoundSchedule one{name, std::move(schedule), {}};
    try {
      one.simulated = simulate(one.schedule, times);
    } catch (const Error&) {  // the ranks would deadlock, or receive messages out of order
      return;
    }
    const double peak = peak_of(one);
    if (peak < least_) {
      least_ = peak;
      least_name_ = name;
    }
    if (memory_ && peak > *memory_ + kSame) return;
    if (best_ && !is_better(one)) return;
    best_ = std::move(one);
  }
  /// Whether a step of this length would be at most as long as the best so far.
  bool may_be(double total) const { return !best_ || total <= best_->simulated.total * (1 + kSame); }
  FoundSchedule take() {
    if (!best_)
      throw Error(ErrorCode::kConfig,
                  formatted("no schedule keeps at most {} activations on each rank: {} keeps {}", short_number(*memory_),
                            least_name_, short_number(least_)),
                  "raise the limit, or choose fewer stages");
    return std::move(*best_);
  }

 private:
  static constexpr double kSame = 1e-9;
  static double peak_of(const FoundSchedule& one) {
    return *std::max_element(one.simulated.peaks.begin(), one.simulated.peaks.end());
  }
  bool is_better(const FoundSchedule& one) const {
    const double difference = one.simulated.total - best_->simulated.total, same = kSame * best_->simulated.total;
    if (std::abs(difference) > same) return difference < 0;
    return peak_of(one) < peak_of(*best_) - kSame;
  }

  const std::optional<double> memory_;
  std::optional<FoundSchedule> best_;
  double least_ = kNever;
  std::string least_name_;
};

void offer_made_orders(Best& best, const std::vector<uint32_t>& rank_of, int64_t micro_batches, const Times& times,
                       std::optional<double> memory) {
  const int64_t ranks = 1 + *std::max_element(rank_of.begin(), rank_of.end());
  const auto chunks = std::ssize(rank_of) / ranks;
  // Each action is chosen by a look at every rank: beyond this size a single order would take minutes.
  if (static_cast<double>(ranks) * static_cast<double>(std::ssize(rank_of)) * static_cast<double>(micro_batches) > kMostLooks)
    return;
  const int64_t limit =
      memory ? static_cast<int64_t>(std::floor(*memory * static_cast<double>(chunks) + 1e-9)) : 3 * ranks * chunks;
  // A small step is simulated for every limit, a large one for only a few of them.
  constexpr int64_t kMostActions = 2'000'000;
  const int64_t actions = 3 * micro_batches * std::ssize(rank_of) * 12;
  const int64_t step = std::max<int64_t>(1, (limit - chunks + 1) * actions / kMostActions);
  for (int64_t most = std::min(limit, micro_batches * chunks); most >= chunks; most -= step)
    for (const bool splits : {true, false})
      for (const bool alternates : {false, true})
        for (const double patience : {0.0, 0.5, 1.0}) {
          if (!splits && patience > 0) continue;
          Maker maker(rank_of, micro_batches, times, {most, splits, alternates, patience});
          if (maker.run() && best.may_be(maker.total())) best.offer("made for these times", maker.schedule(), times);
        }
}

// Null: the schedule does not support this size.
std::optional<Schedule> built_in_of(const std::string& name, const ScheduleSize& size) {
  try {
    return built_in(name, size);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kArgument) throw;
    return std::nullopt;
  }
}

// Offers the built-in training schedules of this size. `rank_of`: required placement; null: any.
void offer_built_in(Best& best, uint32_t stages, int64_t micro_batches, const std::vector<uint32_t>* rank_of,
                    const std::function<Times(const Schedule&)>& times_of) {
  for (const std::string& name : built_in_names()) {
    if (name == "inference" || (name == "data-parallel" && stages > 1)) continue;
    std::optional<Schedule> schedule = built_in_of(name, {stages, micro_batches, std::nullopt});
    if (!schedule || (rank_of && schedule->rank_of != *rank_of)) continue;
    const Times times = times_of(*schedule);
    best.offer(name, std::move(*schedule), times);
  }
}

}  // namespace

FoundSchedule search(const SearchRequest& wanted) {
  Best best(wanted.memory);
  const auto times_of = [&](const Schedule& schedule) { return even_times(schedule, wanted.times, wanted.link); };
  offer_built_in(best, wanted.stages, wanted.micro_batches, nullptr, times_of);
  for (const std::vector<uint32_t>& rank_of : {loop(wanted.stages, 1), loop(wanted.stages, 2), v_shape(wanted.stages)}) {
    const Times times = times_of({std::vector<std::vector<Action>>(wanted.stages), rank_of});
    offer_made_orders(best, rank_of, wanted.micro_batches, times, wanted.memory);
  }
  return best.take();
}

FoundSchedule search_order(const std::vector<uint32_t>& rank_of, int64_t micro_batches, const Times& times,
                           std::optional<double> memory) {
  Best best(memory);
  const uint32_t stages = 1 + *std::max_element(rank_of.begin(), rank_of.end());
  offer_built_in(best, stages, micro_batches, &rank_of, [&](const Schedule&) { return times; });
  offer_made_orders(best, rank_of, micro_batches, times, memory);
  return best.take();
}

}  // namespace gannet::pipeline
