#include "pipeline/flow.h"

#include "base/format.h"

namespace gannet::pipeline {

Result result_of(const Action& action) {
  constexpr Result::Kind kKinds[] = {Result::kActivation, Result::kInputGradient, Result::kInputGradient,
                                     Result::kWeightGradient};
  return {kKinds[action.kind], action.part, action.micro_batch};
}

std::string to_text(const Result& result) {
  constexpr const char* kWords[] = {"activations", "input gradient", "weight gradients"};
  return formatted("the {} of part {}, micro-batch {}", kWords[result.kind], result.part, result.micro_batch);
}

std::vector<Result> needs_of(const Schedule& schedule, const Action& action) {
  const auto [kind, part, micro_batch] = action;
  if (kind == Action::kWeight) return {{Result::kInputGradient, part, micro_batch}};
  std::vector<Result> needs;
  if (kind == Action::kForward) {
    if (part > 0) needs.push_back({Result::kActivation, part - 1, micro_batch});
    return needs;
  }
  needs.push_back({Result::kActivation, part, micro_batch});
  if (part + 1 < schedule.parts()) needs.push_back({Result::kInputGradient, part + 1, micro_batch});
  return needs;
}

std::optional<Message> sent_by(const Schedule& schedule, const Action& action) {
  const Result result = result_of(action);
  std::optional<uint32_t> to;
  if (result.kind == Result::kActivation && action.part + 1 < schedule.parts()) to = schedule.rank_of[action.part + 1];
  if (result.kind == Result::kInputGradient && action.part > 0) to = schedule.rank_of[action.part - 1];
  const uint32_t from = schedule.rank_of[action.part];
  if (!to || *to == from) return std::nullopt;
  return Message{result, from, *to};
}

std::optional<Message> received_by(const Schedule& schedule, const Action& action) {
  const std::vector<Result> needs = needs_of(schedule, action);
  if (needs.empty()) return std::nullopt;
  const uint32_t from = schedule.rank_of[needs.back().part], to = schedule.rank_of[action.part];
  if (from == to) return std::nullopt;
  return Message{needs.back(), from, to};
}

std::unordered_map<Result, Position, ResultHash> producers(const Schedule& schedule) {
  std::unordered_map<Result, Position, ResultHash> found;
  for (size_t rank = 0; rank < schedule.ranks(); ++rank)
    for (size_t i = 0; i < schedule.actions[rank].size(); ++i)
      found.emplace(result_of(schedule.actions[rank][i]), Position{rank, i});
  return found;
}

}  // namespace gannet::pipeline
