// The charts of several runs: one line for each run.
#include <algorithm>
#include <functional>

#include "base/text.h"
#include "report/compare.h"
#include "report/format.h"
#include "report/kinds.h"

namespace gannet::report {
namespace {

using Scale = Chart::Scale;
using ValueOf = std::function<StepValue(const Records&)>;  // of one run; a null StepValue: the run does not have it
using Names = std::vector<std::string> Records::*;

constexpr double kMiB = 1024.0 * 1024;

// The names that occur in any run, in order of first appearance.
std::vector<std::string> all_names(const Comparison& comparison, Names names) {
  std::vector<std::string> all;
  for (const ComparedRun& run : comparison.runs())
    for (const std::string& name : run.records.*names)
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
  return all;
}

// The value that each run has under this name.
ValueOf named(const std::string& name, Names names, StepValue (*value)(size_t)) {
  return [=](const Records& records) {
    const auto& all = records.*names;
    const auto found = std::find(all.begin(), all.end(), name);
    return found == all.end() ? StepValue() : value(static_cast<size_t>(found - all.begin()));
  };
}

class ComparedCharts {
 public:
  ComparedCharts(const Comparison& comparison, const Buckets& buckets) : comparison_(comparison), buckets_(buckets) {}

  Charts take() {
    loss();
    validation_loss();
    add({.id = "lr", .title = "Learning rate", .note = learning_rate_note(), .scale = Scale::kFromZero},
        [](const Records&) { return rate_of_group(0); });
    add({.id = "grad-norm", .title = "Gradient norm", .scale = Scale::kFromZero},
        [](const Records&) { return [](const StepRecord& step) { return step.grad_norm; }; });
    loss_scale();
    step_time();
    throughput();
    memory();
    values();
    if (!alone_.empty()) charts_.notes.push_back("not drawn, since only one run has it: " + join(alone_, ", "));
    return std::move(charts_);
  }

 private:
  bool add(Chart chart, const ValueOf& value_of_run, double factor = 1) {
    const auto& runs = comparison_.runs();
    for (size_t run = 0; run < runs.size(); ++run) {
      StepValue value = value_of_run(runs[run].records);
      if (value && factor != 1) value = times(value, factor);
      ChartLine line{
          .name = runs[run].name, .colour = static_cast<int>(run), .series = comparison_.series_of(run, buckets_, value)};
      if (line.series.known > 0 || line.series.bad > 0) chart.lines.push_back(std::move(line));
    }
    if (chart.lines.size() == 1) alone_.push_back(chart.title + " (" + chart.lines[0].name + ")");
    if (chart.lines.size() < 2) return false;
    chart.ends_in_values = true;
    charts_.all.push_back(std::move(chart));
    return true;
  }

  size_t run_of(const ChartLine& line) const { return static_cast<size_t>(line.colour); }

  double highest(const ValueOf& value_of_run) const {
    double high = 0;
    for (size_t run = 0; run < comparison_.runs().size(); ++run)
      high = std::max(high, comparison_.series_of(run, buckets_, value_of_run(comparison_.runs()[run].records)).high);
    return high;
  }

  void loss() {
    if (!add({.id = "loss", .title = "Loss", .note = "smoothed; the values themselves are drawn faintly", .is_wide = true},
             [](const Records&) { return loss_of(); }))
      return;
    Chart& chart = charts_.all.back();
    chart.has_log = std::all_of(chart.lines.begin(), chart.lines.end(), [](const auto& line) { return allows_log(line.series); });
    bool is_smoothed = false;
    for (ChartLine& line : chart.lines) {
      if (line.series.known < kWorthSmoothing) continue;
      line.smooth = smooth_of(run_of(line));
      is_smoothed = true;
    }
    if (!is_smoothed) chart.note.clear();
  }

  std::vector<Point> smooth_of(size_t run) const {
    const Records& records = comparison_.runs()[run].records;
    const auto values = smoothed(records.steps, loss_of(), half_life(records));
    std::vector<Point> points(buckets_.ranges().size());
    for (size_t b = 0; b < points.size(); ++b)
      for (size_t i = buckets_.ranges()[b].end; i-- > buckets_.ranges()[b].begin;) {
        const StepRecord* step = comparison_.in_run(run, i);
        const auto value = step ? values[static_cast<size_t>(step - records.steps.data())] : std::nullopt;
        if (!value) continue;
        points[b] = {true, *value, *value, *value, 0};
        break;
      }
    return points;
  }

  void validation_loss() {
    const ValueOf value = [](const Records& records) {
      const auto index = validation_value(records);
      return index ? value_of(*index) : StepValue();
    };
    if (!add({.id = "validation", .title = "Validation loss", .note = "○ the smallest", .is_wide = true}, value)) return;
    Chart& chart = charts_.all.back();
    chart.has_log = std::all_of(chart.lines.begin(), chart.lines.end(), [](const auto& line) { return allows_log(line.series); });
    for (ChartLine& line : chart.lines) {
      line.is_sparse = true;
      if (line.series.known > 0) line.best = buckets_.bucket_at(line.series.low_step);
    }
  }

  std::string learning_rate_note() const {
    for (const ComparedRun& run : comparison_.runs())
      for (const StepRecord& step : run.records.steps)
        if (step.lr.size() > 1) return "of group 0";
    return "";
  }

  void loss_scale() {
    const ValueOf value = [](const Records&) { return [](const StepRecord& step) { return step.loss_scale; }; };
    if (highest(value) > 1) add({.id = "loss-scale", .title = "Loss scale", .scale = Scale::kPowersOfTwo}, value);
  }

  void step_time() {
    const ValueOf value = [](const Records&) { return [](const StepRecord& step) { return step.seconds; }; };
    double mean = 0;
    for (size_t run = 0; run < comparison_.runs().size(); ++run)
      mean = std::max(mean, comparison_.series_of(run, buckets_, value({})).mean());
    add({.id = "step-time", .title = "Step time", .unit = mean < 1 ? "ms" : "s", .scale = Scale::kFromZero}, value,
        mean < 1 ? 1e3 : 1);
  }

  void throughput() {
    const auto names = all_names(comparison_, &Records::count_names);
    for (size_t i = 0; i < names.size(); ++i)
      add({.id = "rate-" + std::to_string(i), .title = names[i] + "/s", .scale = Scale::kFromZero},
          named(names[i], &Records::count_names, rate_of));
    if (names.empty())
      add({.id = "rate", .title = "samples/s", .scale = Scale::kFromZero}, [](const Records&) { return samples_rate(); });
  }

  void memory() {
    const auto draw = [&](const std::string& id, const std::string& title, const std::string& note, const ValueOf& value) {
      const double high = highest(value);
      const bool is_large = high >= 1024 * kMiB;
      if (high > 0)
        add({.id = id, .title = title, .unit = is_large ? "GiB" : "MiB", .note = note, .scale = Scale::kFromZero}, value,
            is_large ? 1 / (1024 * kMiB) : 1 / kMiB);
    };
    draw("memory", "Memory of rank 0", "resident",
         [](const Records&) { return [](const StepRecord& step) { return step.memory_bytes; }; });
    const auto names = all_names(comparison_, &Records::memory_names);
    for (size_t i = 0; i < names.size(); ++i)
      draw("memory-" + std::to_string(i), "Memory: " + memory_kind(names[i], i).name, "peak of rank 0",
           named(names[i], &Records::memory_names, memory_of));
  }

  void values() {
    const auto names = all_names(comparison_, &Records::value_names);
    size_t drawn = 0, left_out = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      if (is_validation(names[i])) continue;
      if (drawn == kMaxValues)
        ++left_out;
      else
        drawn += add({.id = "value-" + std::to_string(i), .title = names[i]}, named(names[i], &Records::value_names, value_of));
    }
    if (left_out > 0) charts_.notes.push_back(plural(int64_t(left_out), "more value") + " of the programs are not drawn");
  }

  bool is_validation(const std::string& name) const {
    return std::any_of(comparison_.runs().begin(), comparison_.runs().end(), [&](const ComparedRun& run) {
      const auto index = validation_value(run.records);
      return index && run.records.value_names[*index] == name;
    });
  }

  const Comparison& comparison_;
  const Buckets& buckets_;
  Charts charts_;
  std::vector<std::string> alone_;  // charts that one run has
};

}  // namespace

Charts compared_charts(const Comparison& comparison, const Buckets& buckets) {
  return ComparedCharts(comparison, buckets).take();
}

}  // namespace gannet::report
