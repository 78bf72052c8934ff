#include "report/tables.h"

#include <algorithm>
#include <cmath>

#include "report/format.h"
#include "report/table.h"

namespace gannet::report {
namespace {

constexpr size_t kMaxRows = 200;  // rows of a table that grows with the run: half from its beginning, half from its end
constexpr size_t kSampledSteps = 50;
constexpr size_t kMaxChanges = 8;

// Adds a row for each element or, if there are too many, for the first and the last ones.
template <typename Rows, typename Add>
void add_some(const Rows& rows, Table& table, Add add) {
  const size_t half = kMaxRows / 2;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows.size() > kMaxRows && i == half) {
      table.gap(rows.size() - 2 * half);
      i = rows.size() - half;
    }
    add(rows[i], i);
  }
}

std::string run_name(size_t run) { return std::to_string(run + 1); }

std::string cell_of(const std::optional<double>& value) { return value ? number_text(*value) : "–"; }

}  // namespace

std::string skipped_table(const Records& records) {
  std::vector<const StepRecord*> skipped;
  for (const StepRecord& step : records.steps)
    if (!step.applied) skipped.push_back(&step);
  if (skipped.empty()) return "";
  Table table({"#step", "#run", "#loss", "why"});
  add_some(skipped, table, [&](const StepRecord* step, size_t) {
    table.add({with_commas(step->step), run_name(step->run), cell_of(step->loss),
               step->reason.empty() ? "no reason is recorded" : step->reason});
  });
  return table.html();
}

std::string events_table(const Records& records) {
  std::vector<const EventRecord*> events;
  for (const EventRecord& event : records.events)
    if (event.what != "skip") events.push_back(&event);  // skips have their own table
  if (events.empty()) return "";
  Table table({"#step", "#run", "#time", "what", "text"});
  add_some(events, table, [&](const EventRecord* event, size_t) {
    table.add({with_commas(event->step), run_name(event->run), clock_text(event->time), event->what, event->text});
  });
  return table.html();
}

std::string runs_table(const Records& records) {
  Table table({"#run", "started", "#ranks", "#stage", "dtype", "#steps", "#duration", "#left behind", "config changed"});
  add_some(records.runs, table, [&](const RunRecord& run, size_t i) {
    std::string changed = i == 0 ? "–" : "";
    const auto keys = i == 0 ? std::vector<std::string>() : changed_keys(records.runs[i - 1], run);
    for (size_t k = 0; k < std::min(keys.size(), kMaxChanges); ++k) changed += (k ? "; " : "") + keys[k];
    if (keys.size() > kMaxChanges) changed += "; and " + std::to_string(keys.size() - kMaxChanges) + " more";
    if (changed.empty()) changed = "nothing";
    table.add({run_name(i), run.started_at.empty() ? "–" : run.started_at, with_commas(run.world_size),
               std::to_string(run.zero_stage), run.dtype,
               run.steps == 0 ? "none" : with_commas(run.first_step) + "–" + with_commas(run.last_step),
               duration_text(run.seconds), with_commas(run.left_behind), changed});
  });
  return table.html();
}

std::string numbers_table(const Charts& charts) {
  Table table({"what", "#first", "#last", "#smallest", "#at step", "#largest", "#at step", "#mean"});
  for (const Chart& chart : charts.all)
    for (const ChartLine& line : chart.lines) {
      const Series& series = line.series;
      if (series.known == 0) continue;
      const std::string name =
          chart.title + (line.name.empty() ? "" : ", " + line.name) + (chart.unit.empty() ? "" : ", " + chart.unit);
      table.add({name, number_text(series.first), number_text(series.last), number_text(series.low), with_commas(series.low_step),
                 number_text(series.high), with_commas(series.high_step), number_text(series.mean())});
    }
  return table.html();
}

std::string steps_table(const Records& records) {
  Table table({"#step", "#run", "#loss", "#learning rate", "#gradient norm", "#loss scale", "#seconds", "applied"});
  const size_t count = std::min(kSampledSteps, records.steps.size());
  for (size_t i = 0; i < count; ++i) {
    const StepRecord& step = records.steps[count == 1 ? 0 : i * (records.steps.size() - 1) / (count - 1)];
    table.add({with_commas(step.step), run_name(step.run), cell_of(step.loss), step.lr.empty() ? "–" : number_text(step.lr[0]),
               cell_of(step.grad_norm), cell_of(step.loss_scale), cell_of(step.seconds), step.applied ? "yes" : "no"});
  }
  return table.html();
}

std::string config_table(const RunRecord& run) {
  if (run.config.empty()) return "";
  Table table({"key", "value", "from"});
  for (const ConfigRow& row : run.config) table.add({row.key, row.value, row.origin}, row.origin == "default" ? "default" : "");
  return table.html("config");
}

std::string plugins_table(const RunRecord& run) {
  if (run.plugins.empty()) return "";
  Table table({"kind", "name", "version", "file"});
  for (const PluginRow& row : run.plugins) table.add({row.kind, row.name, row.version, row.file});
  return table.html();
}

std::string machine_table(const RunRecord& run) {
  if (run.machine.empty()) return "";
  Table table({"what", "value"});
  for (const auto& [key, value] : run.machine) {
    std::string name = key.ends_with("_bytes") ? key.substr(0, key.size() - 6) : key;
    std::replace(name.begin(), name.end(), '_', ' ');
    table.add({name, value});
  }
  return table.html();
}

}  // namespace gannet::report
