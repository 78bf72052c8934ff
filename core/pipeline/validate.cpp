#include "pipeline/validate.h"

#include <gannet/error.h>

#include <map>
#include <tuple>
#include <unordered_map>

#include "base/format.h"
#include "pipeline/alive.h"
#include "pipeline/deadlock.h"
#include "pipeline/flow.h"

namespace gannet::pipeline {
namespace {

[[noreturn]] void refuse(size_t rank, size_t index, const Action& action, const std::string& reason,
                         const std::string& next_step) {
  throw Error(ErrorCode::kConfig, formatted("rank {}, position {}: {} {}", rank, index + 1, to_text(action), reason), next_step);
}

// Calls body(rank, index, action) for every action.
template <class Body>
void for_each_action(const Schedule& schedule, const Body& body) {
  for (size_t rank = 0; rank < schedule.ranks(); ++rank)
    for (size_t i = 0; i < schedule.actions[rank].size(); ++i) body(rank, i, schedule.actions[rank][i]);
}

void check_parts(const Schedule& schedule) {
  for (size_t part = 0; part < schedule.parts(); ++part)
    if (schedule.rank_of[part] >= schedule.ranks())
      throw Error(ErrorCode::kConfig,
                  formatted("part {} is on rank {}, and there are {}", part, schedule.rank_of[part], schedule.ranks()),
                  "give every part a rank that has a row");
  if (schedule.parts() == 0)
    throw Error(ErrorCode::kConfig, "the schedule has no parts", "give every rank at least one part of the model");
  for_each_action(schedule, [&](size_t rank, size_t i, const Action& action) {
    if (action.part >= schedule.parts())
      refuse(rank, i, action, formatted("is of part {}, and there are {}", action.part, schedule.parts()),
             "number the parts from 0");
    if (action.micro_batch < 0) refuse(rank, i, action, "has a negative micro-batch", "number the micro-batches from 0");
    if (schedule.rank_of[action.part] != rank)
      refuse(rank, i, action, formatted("is of a part that rank {} has", schedule.rank_of[action.part]),
             "move it to that rank's row");
  });
}

// The kind of backward, B or I, of each (part, micro-batch).
using Backwards = std::unordered_map<Result, Action::Kind, ResultHash>;

Backwards check_once(const Schedule& schedule) {
  std::unordered_map<Result, Position, ResultHash> seen;
  Backwards backwards;
  for_each_action(schedule, [&](size_t rank, size_t i, const Action& action) {
    const auto [first, is_new] = seen.emplace(result_of(action), Position{rank, i});
    const Action& other = schedule.actions[first->second.rank][first->second.index];
    if (!is_new && other.kind == action.kind)
      refuse(rank, i, action, formatted("is there twice, at position {} before", first->second.index + 1), "remove one of them");
    if (!is_new)
      refuse(rank, i, action,
             formatted("comes after {} at position {}: B is I and W together", to_text(other), first->second.index + 1),
             "use either B, or I and W, for a micro-batch on a part");
    if (action.kind == Action::kBackward || action.kind == Action::kInput) backwards[result_of(action)] = action.kind;
  });
  for_each_action(schedule, [&](size_t rank, size_t i, const Action& action) {
    if (action.kind != Action::kWeight) return;
    const auto backward = backwards.find({Result::kInputGradient, action.part, action.micro_batch});
    if (backward != backwards.end() && backward->second == Action::kBackward)
      refuse(rank, i, action, "is the second half of a backward that is whole (B)", "use either B, or I and W");
  });
  return backwards;
}

void check_order_on_ranks(const Schedule& schedule) {
  const auto producer_of = producers(schedule);
  for_each_action(schedule, [&](size_t rank, size_t i, const Action& action) {
    for (const Result& need : needs_of(schedule, action)) {
      const auto producer = producer_of.find(need);
      if (producer == producer_of.end() || producer->second.rank != rank || producer->second.index < i) continue;
      refuse(rank, i, action,
             formatted("needs {}, which {} at position {} computes only later", to_text(need),
                       to_text(schedule.actions[rank][producer->second.index]), producer->second.index + 1),
             formatted("move {} after it", to_text(action)));
    }
  });
}

void check_complete(const Schedule& schedule, const Backwards& backwards) {
  const auto producer_of = producers(schedule);
  const bool is_training = has_backwards(schedule);
  const auto require = [&](const Action& action, const char* reason) {
    if (producer_of.contains(result_of(action))) return;
    const uint32_t rank = schedule.rank_of[action.part];
    throw Error(ErrorCode::kConfig,
                formatted("rank {}, {} positions: {} is missing{}", rank, schedule.actions[rank].size(), to_text(action), reason),
                "add it to the rank's row");
  };
  const int64_t micro_batches = schedule.micro_batches();
  if (micro_batches == 0) throw Error(ErrorCode::kConfig, "the schedule has no actions", "write at least one micro-batch");
  for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch)
    for (uint32_t part = 0; part < schedule.parts(); ++part) {
      require({Action::kForward, part, micro_batch}, "");
      if (!is_training) continue;
      const auto backward = backwards.find({Result::kInputGradient, part, micro_batch});
      if (backward == backwards.end())
        require({Action::kBackward, part, micro_batch}, ", and so is I with W");
      else if (backward->second == Action::kInput)
        require({Action::kWeight, part, micro_batch}, ", although its I is there");
    }
}

// Checks that two ranks receive activations, and gradients, in the order in which these were sent.
void check_lanes(const Schedule& schedule) {
  struct End {
    Message message;
    size_t rank, index;
  };
  using Pair = std::tuple<Result::Kind, uint32_t, uint32_t>;
  std::map<Pair, std::vector<End>> sends, receives;
  for_each_action(schedule, [&](size_t rank, size_t i, const Action& action) {
    const auto pair = [](const Message& message) { return Pair{message.result.kind, message.from, message.to}; };
    if (const auto sent = sent_by(schedule, action)) sends[pair(*sent)].push_back({*sent, rank, i});
    if (const auto received = received_by(schedule, action)) receives[pair(*received)].push_back({*received, rank, i});
  });
  for (const auto& [pair, taken] : receives) {
    const std::vector<End>& sent = sends[pair];
    for (size_t i = 0; i < taken.size() && i < sent.size(); ++i) {
      if (taken[i].message.result == sent[i].message.result) continue;
      refuse(taken[i].rank, taken[i].index, schedule.actions[taken[i].rank][taken[i].index],
             formatted("takes {}, but rank {} sends {} first, by {} at position {}: messages of two ranks arrive in order",
                       to_text(taken[i].message.result), sent[i].rank, to_text(sent[i].message.result),
                       to_text(schedule.actions[sent[i].rank][sent[i].index]), sent[i].index + 1),
             "give both ranks the same order");
    }
  }
}

void check_buffers(const Schedule& schedule, int64_t buffers) {
  if (!has_backwards(schedule)) return;
  for (size_t rank = 0; rank < schedule.ranks(); ++rank) {
    int64_t alive = 0;
    for (size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      const Action& action = schedule.actions[rank][i];
      alive += change_of_alive(action);
      if (alive > buffers)
        refuse(rank, i, action, formatted("would be activation {} that is alive, and there are {} buffers", alive, buffers),
               "move a backward of this rank before it, or allow more buffers");
    }
  }
}

}  // namespace

void validate(const Schedule& schedule, std::optional<int64_t> buffers) {
  check_parts(schedule);
  const Backwards backwards = check_once(schedule);
  check_order_on_ranks(schedule);
  check_complete(schedule, backwards);
  check_lanes(schedule);
  check_deadlock(schedule);
  if (buffers) check_buffers(schedule, *buffers);
}

}  // namespace gannet::pipeline
