#include <algorithm>
#include <vector>

#include "base/format.h"
#include "base/text.h"
#include "pipeline/draw.h"

namespace gannet::pipeline {
namespace {

// In pixels.
constexpr double kLeft = 60, kTop = 12, kRowHeight = 30, kBarHeight = 24, kLetter = 6.5;
constexpr double kNarrowest = 600, kWidest = 8000;

struct Look {
  const char *word, *fill;
};
// By Action::Kind. The colours differ in lightness too, so that they can be told apart in print.
constexpr Look kLooks[] = {{"forward", "#9ecae1"},
                           {"backward", "#fdae6b"},
                           {"backward of the inputs", "#fdd0a2"},
                           {"backward of the weights", "#74c476"}};
constexpr const char* kIdle = "#eeeeee";

// Pixels per unit of time: the text of the shortest action fits, unless the page would be too wide.
double scale_of(const Schedule& schedule, const SimulatedStep& step) {
  if (step.total <= 0) return 1;
  double scale = kNarrowest / step.total;
  for (size_t rank = 0; rank < schedule.ranks(); ++rank)
    for (size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      const auto [start, end] = step.spans[rank][i];
      const double wanted = kLetter * static_cast<double>(to_text(schedule.actions[rank][i]).size() + 1);
      if (end > start) scale = std::max(scale, wanted / (end - start));
    }
  return std::min(scale, kWidest / step.total);
}

std::string bar(const Action& action, const SimulatedStep::Span& span, double scale, double y) {
  const double x = kLeft + span.start * scale, width = (span.end - span.start) * scale;
  const std::string text = to_text(action);
  std::string out =
      formatted("<g><title>{}: {} to {}</title><rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"/>",
                text, short_number(span.start), short_number(span.end), x, y, width, kBarHeight, kLooks[action.kind].fill);
  if (width >= kLetter * static_cast<double>(text.size()))
    out += formatted("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"middle\">{}</text>", x + width / 2, y + kBarHeight - 8, text);
  return out + "</g>\n";
}

// The kinds of action in the schedule, and idle time if there is any, with their colours.
std::string legend(const Schedule& schedule, bool has_idle_time, double y) {
  bool is_used[4] = {};
  for (const auto& row : schedule.actions)
    for (const Action& action : row) is_used[action.kind] = true;
  std::vector<Look> looks;
  for (size_t kind = 0; kind < 4; ++kind)
    if (is_used[kind]) looks.push_back(kLooks[kind]);
  if (has_idle_time) looks.push_back({"idle", kIdle});
  std::string out;
  double x = kLeft;
  for (const Look& look : looks) {
    out += formatted("<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>\n", x,
                     y - 10, look.fill, x + 18, y, look.word);
    x += 40 + kLetter * static_cast<double>(std::string_view(look.word).size());
  }
  return out;
}

}  // namespace

std::string draw_svg(const Schedule& schedule, const SimulatedStep& step) {
  const double scale = scale_of(schedule, step);
  const double bottom = kTop + kRowHeight * static_cast<double>(schedule.ranks());
  const double width = kLeft + std::max(step.total * scale, kNarrowest) + 20, height = bottom + 60;
  std::string out = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" viewBox=\"0 0 {:.0f} {:.0f}\" "
      "font-family=\"monospace\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      width, height, width, height);
  for (size_t rank = 0; rank < schedule.ranks(); ++rank) {
    const double y = kTop + kRowHeight * static_cast<double>(rank);
    out += formatted(
        "<text x=\"8\" y=\"{:.2f}\">rank {}</text><rect x=\"{}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{}\" "
        "fill=\"{}\"/>\n",
        y + kBarHeight - 8, rank, kLeft, y, step.total * scale, kBarHeight, kIdle);
    for (size_t i = 0; i < schedule.actions[rank].size(); ++i)
      out += bar(schedule.actions[rank][i], step.spans[rank][i], scale, y);
  }
  out += formatted("<text x=\"{}\" y=\"{:.2f}\">total {}, idle share {:.1f}%</text>\n", kLeft, bottom + 16,
                   short_number(step.total), 100 * step.idle_share);
  return out + legend(schedule, step.idle_share > 1e-9, bottom + 40) + "</svg>\n";
}

}  // namespace gannet::pipeline
