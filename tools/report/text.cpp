// The report for a terminal.
#include "report/charts.h"
#include "report/format.h"
#include "report/report.h"
#include "report/tables.h"
#include "report/text_parts.h"

namespace gannet::report {
namespace {

constexpr size_t kColumns = 60;
constexpr size_t kShownSkips = 5;

}  // namespace

std::vector<std::string> Report::summary() const {
  std::vector<std::string> lines(3);
  for (const Tile& tile : tiles_of(records_)) {
    if (tile.label == "model") lines[0] = tile.value + " parameters";
    if (tile.label == "rank" || tile.label == "ranks")
      lines[0] += (lines[0].empty() ? "" : ", ") + tile.value + " " + tile.label + ", " + tile.detail;
    if (tile.label == "duration") lines[1] = tile.value + (tile.detail == "one run" ? "" : " " + tile.detail);
    if (tile.label == "steps") lines[1] = "step " + tile.value + " after " + lines[1];
    if (tile.label == "last loss") lines[2] = "last loss " + tile.value + (tile.detail.empty() ? "" : " (" + tile.detail + ")");
    if (tile.label == "best validation loss") lines[2] += ", best validation loss " + tile.value + " (" + tile.detail + ")";
    if (tile.label.ends_with("/s")) lines[1] += ", " + tile.value + " " + tile.label;
    if (tile.label == "skipped") lines[2] += ", " + (tile.value == "0" ? "no step skipped" : tile.value + " skipped");
  }
  if (lines[0].empty()) lines[0] = "a run that its file does not describe";
  if (records_.steps.empty()) lines[2] = "no step has been recorded";
  for (std::string& line : lines) line = plain(line);
  return lines;
}

std::string Report::text() const {
  std::string text;
  for (const std::string& line : summary()) text += line + "\n";
  if (records_.steps.empty()) return text;
  const Buckets buckets(records_.steps, kColumns);
  const Charts charts = charts_of(records_, buckets);
  for (const Chart& chart : charts.all)
    if (chart.id == "loss") text += "\nloss  " + sparkline(chart.lines[0].series) + "\n";
  text += "\n" + padded("", 31) + padded("first", 12) + padded("last", 12) + padded("smallest", 12) + padded("largest", 12) +
          "mean\n";
  for (const Chart& chart : charts.all)
    for (const ChartLine& line : chart.lines) {
      const Series& series = line.series;
      if (series.known == 0) continue;
      std::string name = chart.title + (line.name.empty() ? "" : " " + line.name) + (chart.unit.empty() ? "" : ", " + chart.unit);
      text += padded(plain(name), 30) + " " + padded(number_text(series.first), 12) + padded(number_text(series.last), 12) +
              padded(number_text(series.low), 12) + padded(number_text(series.high), 12) + number_text(series.mean()) + "\n";
    }
  size_t shown = 0;
  const auto skipped = static_cast<size_t>(skipped_steps(records_));
  for (const StepRecord& step : records_.steps) {
    if (step.applied) continue;
    if (shown == kShownSkips) {
      text += "... and " + std::to_string(skipped - shown) + " more skipped steps\n";
      break;
    }
    text += (shown++ == 0 ? "\n" : "") +
            plain("step " + std::to_string(step.step) + " skipped" + (step.reason.empty() ? "" : ": " + step.reason)) + "\n";
  }
  return text;
}

}  // namespace gannet::report
