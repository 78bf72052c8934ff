#include "pipeline/schedule.h"

#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"

namespace gannet::pipeline {
namespace {

// `ahead`: the number of forwards before the first backward.
std::vector<Action> with_forwards_ahead(int64_t ahead, int64_t micro_batches) {
  std::vector<Action> actions;
  for (int64_t i = 0; i < std::min(ahead, micro_batches); ++i) actions.push_back({Action::kForward, i});
  for (int64_t i = 0; i < micro_batches; ++i) {
    actions.push_back({Action::kBackward, i});
    if (i + ahead < micro_batches) actions.push_back({Action::kForward, i + ahead});
  }
  return actions;
}

}  // namespace

std::string to_text(const std::vector<Action>& actions) {
  std::string text;
  const bool has_chunks = std::any_of(actions.begin(), actions.end(), [](const Action& action) { return action.chunk > 0; });
  for (const Action& action : actions) {
    text += formatted("{}{}{}", text.empty() ? "" : " ", action.kind == Action::kForward ? "F" : "B", action.micro_batch);
    if (has_chunks) text += formatted(".{}", action.chunk);
  }
  return text;
}

std::vector<Action> all_forward_all_backward(uint32_t, uint32_t, int64_t micro_batches) {
  return with_forwards_ahead(micro_batches, micro_batches);
}

std::vector<Action> one_forward_one_backward(uint32_t stage, uint32_t stages, int64_t micro_batches) {
  return with_forwards_ahead(stages - stage, micro_batches);
}

std::vector<Action> interleaved(uint32_t stage, uint32_t stages, uint32_t chunks, int64_t micro_batches) {
  if (micro_batches % stages != 0)
    throw Error(ErrorCode::kConfig,
                formatted("the schedule interleaved takes micro-batches in groups of {}, the number of stages, and a step has {}",
                          stages, micro_batches),
                "make gradient_accumulation_steps a multiple of the number of stages, or choose the schedule 1f1b");
  const int64_t group = stages, all = micro_batches * chunks;
  const auto action = [&](Action::Kind kind, int64_t number) {
    const auto chunk = static_cast<uint32_t>(number / group % chunks);
    return Action{kind, number / (group * chunks) * group + number % group,
                  kind == Action::kForward ? chunk : chunks - 1 - chunk};
  };
  const int64_t ahead = std::min<int64_t>(all, 2 * (stages - stage - 1) + (chunks - 1) * group);
  std::vector<Action> actions;
  for (int64_t i = 0; i < ahead; ++i) actions.push_back(action(Action::kForward, i));
  for (int64_t i = 0; i < all; ++i) {
    if (i + ahead < all) actions.push_back(action(Action::kForward, i + ahead));
    actions.push_back(action(Action::kBackward, i));
  }
  return actions;
}

std::vector<Action> actions_of(const std::string& name, uint32_t stage, uint32_t stages, uint32_t chunks, int64_t micro_batches) {
  if (chunks > 1) return interleaved(stage, stages, chunks, micro_batches);
  if (name == "gpipe") return all_forward_all_backward(stage, stages, micro_batches);
  return one_forward_one_backward(stage, stages, micro_batches);
}

}  // namespace gannet::pipeline
