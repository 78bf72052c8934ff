#include "pipeline/draw.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/text.h"

namespace gannet::pipeline {
namespace {

// The duration of one cell; 0 if no action takes any time.
double cell_time(const SimulatedStep& step) {
  constexpr double kMostCells = 400;
  double shortest = step.total;
  for (const auto& spans : step.spans)
    for (const SimulatedStep::Span& span : spans)
      if (span.end > span.start) shortest = std::min(shortest, span.end - span.start);
  return std::max(shortest, step.total / kMostCells);
}

std::string percent(double share) { return formatted("{:.1f}%", 100 * share); }

}  // namespace

std::string draw_text(const Schedule& schedule, const SimulatedStep& step) {
  const double cell = cell_time(step);
  size_t width = 0;
  for (const auto& row : schedule.actions)
    for (const Action& action : row) width = std::max(width, to_text(action).size() + 1);
  const size_t label_width = formatted("rank {}  ", schedule.ranks() - 1).size();
  std::string text;
  for (size_t rank = 0; rank < schedule.ranks(); ++rank) {
    std::string line = formatted("rank {}", rank);
    line.resize(label_width, ' ');
    const auto column_of = [&](double time) {
      return label_width + width * static_cast<size_t>(cell > 0 ? std::lround(time / cell) : 0);
    };
    for (size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      const SimulatedStep::Span& span = step.spans[rank][i];
      // An action that rounds to zero cells still gets one, and shifts those after it.
      const size_t begin = std::max(line.size(), column_of(span.start));
      const size_t end = std::max(begin + width, column_of(span.end));
      line.resize(begin, ' ');
      line += to_text(schedule.actions[rank][i]);
      line.resize(end - 1, end - begin > width ? '-' : ' ');
      line += ' ';
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string summary_text(const SimulatedStep& step) {
  std::string text = formatted("total {}, idle share {}\n\nrank   idle share   peak live activations\n", short_number(step.total),
                               percent(step.idle_share));
  for (size_t rank = 0; rank < step.peaks.size(); ++rank)
    text += formatted("{:>4}   {:>10}   {:>21}\n", rank, percent(step.idle_shares[rank]), short_number(step.peaks[rank]));
  return text;
}

}  // namespace gannet::pipeline
