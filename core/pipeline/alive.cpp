#include "pipeline/alive.h"

#include <algorithm>

namespace gannet::pipeline {

bool has_backwards(const Schedule& schedule) {
  return std::any_of(schedule.actions.begin(), schedule.actions.end(), [](const std::vector<Action>& row) {
    return std::any_of(row.begin(), row.end(), [](const Action& action) { return action.kind != Action::kForward; });
  });
}

int64_t change_of_alive(const Action& action) {
  constexpr int64_t kChanges[] = {1, -1, 0, -1};
  return kChanges[action.kind];
}

int64_t most_alive(const Schedule& schedule, size_t rank) {
  int64_t alive = 0, most = 0;
  if (!has_backwards(schedule)) return 0;
  for (const Action& action : schedule.actions[rank]) {
    alive += change_of_alive(action);
    most = std::max(most, alive);
  }
  return most;
}

}  // namespace gannet::pipeline
