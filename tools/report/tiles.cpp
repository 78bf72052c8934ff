// The tiles at the head of the report: what the run was and how it went.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "report/format.h"
#include "report/tables.h"

namespace gannet::report {
namespace {

std::string percent_of(int64_t part, int64_t whole) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2g%% of steps", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

Tile loss_tile(const Records& records) {
  Tile tile{"last loss", "–", ""};
  const StepRecord* last = nullptr;
  const StepRecord* best = nullptr;
  for (const StepRecord& step : records.steps) {
    if (!step.loss) continue;
    last = &step;
    if (std::isfinite(*step.loss) && (!best || *step.loss < *best->loss)) best = &step;
  }
  if (last) tile.value = number_text(*last->loss);
  if (best) tile.detail = "smallest " + number_text(*best->loss) + " at step " + with_commas(best->step);
  return tile;
}

std::optional<Tile> validation_tile(const Records& records) {
  const auto value = validation_value(records);
  if (!value) return std::nullopt;
  const Series losses = series(Buckets(records.steps, 1), value_of(*value));
  if (losses.known == 0) return std::nullopt;
  return Tile{"best validation loss", number_text(losses.low),
              "at step " + with_commas(losses.low_step) + "; last " + number_text(losses.last)};
}

// The rate is the total amount divided by the total time; the median shows the rate of the steps
// without pauses.
Tile rate_tile(const Records& records) {
  const bool has_counts = !records.count_names.empty();
  const StepValue rate = has_counts ? rate_of(0) : samples_rate();
  double amount = 0, seconds = 0;
  std::vector<double> rates;
  for (const StepRecord& step : records.steps) {
    const auto value = rate(step);
    if (!value || !std::isfinite(*value)) continue;
    rates.push_back(*value);
    amount += *value * *step.seconds;
    seconds += *step.seconds;
  }
  Tile tile{(has_counts ? records.count_names[0] : "samples") + "/s", "–", ""};
  if (seconds > 0) {
    tile.value = number_text(amount / seconds);
    tile.detail = "median step " + number_text(quantile(rates, 0.5));
  }
  return tile;
}

}  // namespace

int64_t skipped_steps(const Records& records) {
  return std::count_if(records.steps.begin(), records.steps.end(), [](const StepRecord& step) { return !step.applied; });
}

std::vector<Tile> tiles_of(const Records& records) {
  const RunRecord& run = records.runs.back();
  std::vector<Tile> tiles;
  if (run.parameters > 0) tiles.push_back({"model", count_text(static_cast<double>(run.parameters)), "parameters"});
  if (run.world_size > 0)
    tiles.push_back({run.world_size == 1 ? "rank" : "ranks", with_commas(run.world_size),
                     "ZeRO stage " + std::to_string(run.zero_stage) + (run.dtype.empty() ? "" : ", " + run.dtype)});
  if (run.train_batch_size > 0)
    tiles.push_back({"batch", with_commas(run.train_batch_size),
                     with_commas(run.micro_batch_size) + " × " + plural(run.accumulation_steps, "step") + " × " +
                         plural(run.world_size, "rank")});
  double seconds = 0;
  for (const RunRecord& one : records.runs) seconds += one.seconds;
  tiles.push_back({"duration", duration_text(seconds),
                   records.runs.size() == 1 ? "one run" : "in " + plural(int64_t(records.runs.size()), "run")});
  if (records.steps.empty()) return tiles;
  tiles.push_back({"steps", with_commas(records.steps.back().step),
                   records.steps.front().step > 1 ? "from " + with_commas(records.steps.front().step) + " on" : "all recorded"});
  tiles.push_back(loss_tile(records));
  if (auto tile = validation_tile(records)) tiles.push_back(*std::move(tile));
  tiles.push_back(rate_tile(records));
  const int64_t skipped = skipped_steps(records);
  tiles.push_back({"skipped", with_commas(skipped),
                   skipped ? percent_of(skipped, static_cast<int64_t>(records.steps.size())) : "every step was taken"});
  return tiles;
}

std::vector<std::string> changed_keys(const RunRecord& before, const RunRecord& after) {
  std::vector<std::string> changed;
  const auto value_in = [](const RunRecord& run, const std::string& key) -> const std::string* {
    for (const ConfigRow& row : run.config)
      if (row.key == key) return &row.value;
    return nullptr;
  };
  for (const ConfigRow& row : after.config) {
    const std::string* old = value_in(before, row.key);
    if (!old || *old != row.value) changed.push_back(row.key + ": " + (old ? *old : "not set") + " → " + row.value);
  }
  for (const ConfigRow& row : before.config)
    if (!value_in(after, row.key)) changed.push_back(row.key + ": " + row.value + " → not set");
  return changed;
}

}  // namespace gannet::report
