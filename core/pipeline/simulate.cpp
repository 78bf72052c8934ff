#include "pipeline/simulate.h"

#include <gannet/error.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/check.h"
#include "base/format.h"
#include "pipeline/alive.h"
#include "pipeline/flow.h"
#include "pipeline/validate.h"

namespace gannet::pipeline {
namespace {

double duration_of(const Action& action, const Times& times) {
  const PassTimes& part = times.of_part[action.part];
  const double all[] = {part.forward, part.input + part.weight, part.input, part.weight};
  return all[action.kind];
}

void check_times(const Schedule& schedule, const Times& times) {
  GANNET_CHECK(times.of_part.size() == schedule.parts());
  const auto check = [](const char* what, double time) {
    if (!std::isfinite(time) || time < 0)
      throw Error(ErrorCode::kArgument, formatted("the time of {} is {}", what, time), "give times of 0 and above");
  };
  for (const PassTimes& part : times.of_part) {
    check("a forward", part.forward);
    check("a backward of the inputs", part.input);
    check("a backward of the weights", part.weight);
  }
  check("a link", times.link);
}

// When the inputs of an action are available; -1 if they are not computed yet.
double ready_at(const Schedule& schedule, const Times& times, size_t rank, const Action& action,
                const std::unordered_map<Result, double, ResultHash>& ended) {
  double ready = 0;
  for (const Result& need : needs_of(schedule, action)) {
    const auto end = ended.find(need);
    if (end == ended.end()) return -1;
    ready = std::max(ready, end->second + (schedule.rank_of[need.part] == rank ? 0 : times.link));
  }
  return ready;
}

void fill_spans(const Schedule& schedule, const Times& times, SimulatedStep& out) {
  std::unordered_map<Result, double, ResultHash> ended;
  std::vector<double> free_at(schedule.ranks());
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < schedule.ranks(); ++rank) {
      const std::vector<Action>& row = schedule.actions[rank];
      while (out.spans[rank].size() < row.size()) {
        const Action& action = row[out.spans[rank].size()];
        const double ready = ready_at(schedule, times, rank, action, ended);
        if (ready < 0) break;
        const double start = std::max(free_at[rank], ready);
        free_at[rank] = start + duration_of(action, times);
        out.spans[rank].push_back({start, free_at[rank]});
        ended[result_of(action)] = free_at[rank];
        moved = true;
      }
    }
  }
}

}  // namespace

Times even_times(const Schedule& schedule, const PassTimes& of_rank, double link) {
  Times times{{}, link};
  for (const uint32_t rank : schedule.rank_of) {
    const auto share = static_cast<double>(schedule.parts_of(rank));
    times.of_part.push_back({of_rank.forward / share, of_rank.input / share, of_rank.weight / share});
  }
  return times;
}

SimulatedStep simulate(const Schedule& schedule, const Times& times) {
  validate(schedule);
  check_times(schedule, times);
  SimulatedStep out;
  out.spans.resize(schedule.ranks());
  fill_spans(schedule, times, out);
  for (const auto& spans : out.spans)
    if (!spans.empty()) out.total = std::max(out.total, spans.back().end);
  for (size_t rank = 0; rank < schedule.ranks(); ++rank) {
    double busy = 0;
    for (const Action& action : schedule.actions[rank]) busy += duration_of(action, times);
    out.idle_shares.push_back(out.total > 0 ? std::max(0.0, 1 - busy / out.total) : 0);
    out.idle_share += out.idle_shares.back() / static_cast<double>(schedule.ranks());
    out.peaks.push_back(static_cast<double>(most_alive(schedule, rank)) / static_cast<double>(schedule.parts_of(rank)));
  }
  return out;
}

}  // namespace gannet::pipeline
