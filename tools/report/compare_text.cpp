// Several runs for a terminal, side by side: a column for each.
#include <algorithm>

#include "report/compare.h"
#include "report/format.h"
#include "report/tables.h"
#include "report/text_parts.h"

namespace gannet::report {
namespace {

constexpr size_t kSparkColumns = 60;
constexpr size_t kGap = 2;

// Rows of cells, in columns as wide as their longest cell.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], columns_of(row[i]));
    }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) text += i + 1 < row.size() ? padded(row[i], widths[i] + kGap) : row[i];
    text += "\n";
  }
  return text;
}

std::vector<std::string> names_row(const Comparison& comparison) {
  std::vector<std::string> row{""};
  for (const ComparedRun& run : comparison.runs()) row.push_back(plain(run.name));
  return row;
}

// The tiles' values; the loss and the validation loss with the line below.
std::vector<std::vector<std::string>> tile_rows(const Comparison& comparison) {
  std::vector<std::vector<std::string>> rows;
  for (size_t run = 0; run < comparison.runs().size(); ++run)
    for (const Tile& tile : tiles_of(comparison.runs()[run].records)) {
      const std::string label = plain(tile.label == "rank" ? "ranks" : tile.label);
      auto found = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row[0] == label; });
      if (found == rows.end()) found = rows.insert(rows.end(), std::vector<std::string>{label});
      found->resize(run + 1, "–");
      const bool has_detail = label == "ranks" || label.ends_with("loss");
      found->push_back(plain(tile.value + (has_detail && !tile.detail.empty() ? " (" + tile.detail + ")" : "")));
    }
  for (auto& row : rows) row.resize(comparison.runs().size() + 1, "–");
  return rows;
}

}  // namespace

std::vector<std::string> Comparison::summary() const {
  std::vector<std::string> lines;
  for (const ComparedRun& run : runs_) {
    std::string line = run.name + ": step " + with_commas(run.records.steps.back().step);
    for (const Tile& tile : tiles_of(run.records))
      if (tile.label.ends_with("loss"))
        line += ", " + tile.label + " " + tile.value + (tile.detail.empty() ? "" : " (" + tile.detail + ")");
    lines.push_back(plain(line));
  }
  return lines;
}

std::string Comparison::text() const {
  std::vector<std::vector<std::string>> rows{names_row(*this)};
  for (auto& row : tile_rows(*this)) rows.push_back(std::move(row));
  std::string text = aligned(rows);

  const Buckets buckets(steps_.steps, kSparkColumns);
  const Charts charts = compared_charts(*this, buckets);
  rows.clear();
  for (const Chart& chart : charts.all)
    if (chart.id == "loss")
      for (const ChartLine& line : chart.lines) rows.push_back({"loss", plain(line.name), sparkline(line.series)});
  text += "\n" + aligned(rows) + "\n";

  rows = {names_row(*this)};
  rows[0][0] = "last, and mean";
  for (const Chart& chart : charts.all) {
    rows.push_back({plain(chart.title + (chart.unit.empty() ? "" : ", " + chart.unit))});
    for (size_t run = 0; run < runs_.size(); ++run) {
      const auto found = std::find_if(chart.lines.begin(), chart.lines.end(),
                                      [&](const auto& line) { return line.colour == static_cast<int>(run); });
      const bool is_known = found != chart.lines.end() && found->series.known > 0;
      rows.back().push_back(is_known ? number_text(found->series.last) + ", " + number_text(found->series.mean()) : "–");
    }
  }
  text += aligned(rows);
  for (const std::string& note : charts.notes) text += "\n" + plain(note) + "\n";
  return text;
}

}  // namespace gannet::report
