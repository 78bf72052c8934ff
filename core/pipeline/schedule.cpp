#include "pipeline/schedule.h"

#include <algorithm>

#include "base/check.h"
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
  for (const Action& action : actions)
    text += formatted("{}{}{}", text.empty() ? "" : " ", action.kind == Action::kForward ? "F" : "B", action.micro_batch);
  return text;
}

std::vector<Action> all_forward_all_backward(uint32_t, uint32_t, int64_t micro_batches) {
  return with_forwards_ahead(micro_batches, micro_batches);
}

std::vector<Action> one_forward_one_backward(uint32_t stage, uint32_t stages, int64_t micro_batches) {
  return with_forwards_ahead(stages - stage, micro_batches);
}

std::vector<Action> actions_of(const std::string& name, uint32_t stage, uint32_t stages, int64_t micro_batches) {
  if (name == "gpipe") return all_forward_all_backward(stage, stages, micro_batches);
  GANNET_CHECK(name == "1f1b", "a schedule of the key table");
  return one_forward_one_backward(stage, stages, micro_batches);
}

}  // namespace gannet::pipeline
