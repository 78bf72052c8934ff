// The tables of several runs: a column for each run.
#include <algorithm>
#include <set>

#include "report/compare.h"
#include "report/format.h"
#include "report/kinds.h"
#include "report/table.h"
#include "report/tables.h"

namespace gannet::report {
namespace {

Cell named_cell(const Comparison& comparison, size_t run, const std::string& before = "") {
  Cell cell(before + comparison.runs()[run].name);
  cell.chip = static_cast<int>(run);
  return cell;
}

// A table whose first column has this heading, followed by a column for each run.
Table by_run(const Comparison& comparison, const std::string& head, bool has_numbers) {
  std::vector<Cell> heads{head};
  for (size_t run = 0; run < comparison.runs().size(); ++run)
    heads.push_back(named_cell(comparison, run, has_numbers ? "#" : ""));
  return Table(std::move(heads));
}

using Pairs = std::vector<std::pair<std::string, std::string>>;  // key, value

// The keys whose values differ between runs, in order of first appearance.
std::string differences(const Comparison& comparison, const std::string& head, const std::vector<Pairs>& values) {
  Table table = by_run(comparison, head, /*has_numbers=*/false);
  std::set<std::string> seen;
  for (const Pairs& pairs : values)
    for (const auto& [key, ignored] : pairs) {
      if (!seen.insert(key).second) continue;
      std::vector<Cell> cells{key};
      for (const Pairs& one : values) {
        const auto found = std::find_if(one.begin(), one.end(), [&](const auto& pair) { return pair.first == key; });
        cells.emplace_back(found == one.end() ? "not set" : found->second);
      }
      const bool differs =
          std::any_of(cells.begin() + 2, cells.end(), [&](const Cell& cell) { return cell.text != cells[1].text; });
      if (differs) table.add(cells);
    }
  return table.is_empty() ? "" : table.html();
}

}  // namespace

std::string compared_tiles(const Comparison& comparison) {
  std::vector<std::vector<Tile>> tiles;
  std::vector<std::string> labels;  // in the order of the run that has the most
  for (const ComparedRun& run : comparison.runs()) {
    tiles.push_back(tiles_of(run.records));
    for (auto& tile : tiles.back()) {
      if (tile.label == "rank") tile.label = "ranks";
      if (std::find(labels.begin(), labels.end(), tile.label) == labels.end()) labels.push_back(tile.label);
    }
  }
  std::vector<Cell> heads{"run"};
  for (const std::string& label : labels) heads.emplace_back(label);
  Table table(std::move(heads));
  for (size_t run = 0; run < tiles.size(); ++run) {
    std::vector<Cell> cells{named_cell(comparison, run)};
    for (const std::string& label : labels) {
      const auto found =
          std::find_if(tiles[run].begin(), tiles[run].end(), [&](const Tile& tile) { return tile.label == label; });
      cells.push_back(found == tiles[run].end() ? Cell("–") : Cell(found->value, found->detail));
    }
    table.add(cells);
  }
  return table.html("heads");
}

std::string phases_by_run(const Comparison& comparison) {
  std::vector<std::string> names;
  for (const ComparedRun& run : comparison.runs())
    for (const std::string& name : run.records.phase_names)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  if (names.empty()) return "";
  Table table = by_run(comparison, "mean of a step", /*has_numbers=*/true);
  const auto row = [&](const std::string& name, const auto& mean_of) {
    std::vector<Cell> cells{name};
    for (const ComparedRun& run : comparison.runs()) {
      const Series one = series(Buckets(run.records.steps, 1), mean_of(run.records));
      cells.emplace_back(one.known > 0 ? duration_text(one.mean()) : "–");
    }
    table.add(cells);
  };
  row("whole step", [](const Records&) { return [](const StepRecord& step) { return step.seconds; }; });
  for (size_t i = 0; i < names.size(); ++i)
    row(phase_kind(names[i], i).name, [&](const Records& records) -> StepValue {
      const auto found = std::find(records.phase_names.begin(), records.phase_names.end(), names[i]);
      if (found == records.phase_names.end()) return [](const StepRecord&) { return std::optional<double>(); };
      return phase_of(static_cast<size_t>(found - records.phase_names.begin()));
    });
  return table.html();
}

std::string config_differences(const Comparison& comparison) {
  std::vector<Pairs> values;
  for (const ComparedRun& run : comparison.runs()) {
    values.emplace_back();
    for (const ConfigRow& row : run.records.runs.back().config) values.back().emplace_back(row.key, row.value);
  }
  return differences(comparison, "key", values);
}

std::string machine_differences(const Comparison& comparison) {
  std::vector<Pairs> values;
  for (const ComparedRun& run : comparison.runs()) values.push_back(run.records.runs.back().machine);
  return differences(comparison, "what", values);
}

}  // namespace gannet::report
