#include "pipeline/schedule.h"

#include <algorithm>

#include "base/format.h"

namespace gannet::pipeline {

int64_t Schedule::micro_batches() const {
  int64_t count = 0;
  for (const std::vector<Action>& row : actions)
    for (const Action& action : row) count = std::max(count, action.micro_batch + 1);
  return count;
}

size_t Schedule::parts_of(size_t rank) const {
  return static_cast<size_t>(std::count(rank_of.begin(), rank_of.end(), static_cast<uint32_t>(rank)));
}

std::vector<uint32_t> loop(uint32_t ranks, uint32_t chunks) {
  std::vector<uint32_t> rank_of;
  for (uint32_t chunk = 0; chunk < chunks; ++chunk)
    for (uint32_t rank = 0; rank < ranks; ++rank) rank_of.push_back(rank);
  return rank_of;
}

std::vector<uint32_t> v_shape(uint32_t ranks) {
  std::vector<uint32_t> rank_of = loop(ranks, 1);
  for (uint32_t rank = ranks; rank > 0; --rank) rank_of.push_back(rank - 1);
  return rank_of;
}

std::string to_text(const Action& action) {
  constexpr char kLetters[] = {'F', 'B', 'I', 'W'};
  return formatted("{}{}{}", action.part, kLetters[action.kind], action.micro_batch);
}

std::string to_text(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) text += formatted("{}{}", text.empty() ? "" : " ", to_text(action));
  return text;
}

std::string to_csv(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Action>& row : schedule.actions) {
    for (size_t i = 0; i < row.size(); ++i) text += formatted("{}{}", i > 0 ? "," : "", to_text(row[i]));
    text += '\n';
  }
  return text;
}

}  // namespace gannet::pipeline
