#include "report/charts.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "report/format.h"
#include "report/kinds.h"

namespace gannet::report {
namespace {

constexpr int kValidationColour = 1;

std::optional<double> in(const IndexedValues& named, size_t index) {
  for (const auto& [name, value] : named)
    if (name == index) return value;
  return std::nullopt;
}

std::optional<double> per_second(std::optional<double> amount, const StepRecord& step) {
  return amount && step.seconds && *step.seconds > 0 ? std::optional(*amount / *step.seconds) : std::nullopt;
}

std::vector<Point> points_of(const Buckets& buckets, const std::vector<std::optional<double>>& values) {
  std::vector<Point> points(buckets.ranges().size());
  for (size_t b = 0; b < points.size(); ++b)
    if (const auto value = values[buckets.ranges()[b].end - 1]) points[b] = {true, *value, *value, *value, 0};
  return points;
}

bool has_something(const Series& series) { return series.known > 0 || series.bad > 0; }

class ChartBuilder {
 public:
  ChartBuilder(const Records& records, const Buckets& buckets) : records_(records), buckets_(buckets) {}

  Charts take() {
    loss();
    learning_rates();
    gradient_norm();
    loss_scale();
    step_time();
    throughput();
    memory();
    memory_by_kind();
    values();
    return std::move(charts_);
  }

 private:
  Chart* add(Chart chart, const StepValue& extract) {
    ChartLine line{.series = series(buckets_, extract)};
    if (!has_something(line.series)) return nullptr;
    chart.lines.push_back(std::move(line));
    charts_.all.push_back(std::move(chart));
    return &charts_.all.back();
  }

  void loss() {
    Chart* chart = add({.id = "loss", .title = "Loss", .is_wide = true}, loss_of());
    if (!chart) return;
    ChartLine& training = chart->lines[0];
    chart->has_log = allows_log(training.series);
    if (training.series.known >= kWorthSmoothing) {
      const double steps = half_life(records_);
      training.smooth = points_of(buckets_, smoothed(records_.steps, loss_of(), steps));
      chart->note = "smoothed with a half-life of " + plural(static_cast<int64_t>(steps), "step");
    }
    validation_loss(*chart);
  }

  void validation_loss(Chart& chart) {
    const auto value = validation_value(records_);
    if (!value) return;
    ChartLine line{.name = "validation",
                   .colour = kValidationColour,
                   .series = series(buckets_, value_of(*value)),
                   .meaning = "the program's value " + records_.value_names[*value],
                   .is_sparse = true};
    if (!has_something(line.series)) return;
    if (line.series.known > 0) line.best = buckets_.bucket_at(line.series.low_step);
    chart.has_log = chart.has_log && (line.series.known == 0 || allows_log(line.series));
    chart.ends_in_values = true;
    chart.lines[0].name = "training";
    chart.lines.push_back(std::move(line));
    drawn_with_loss_ = value;
  }

  // Groups that have the same rate at all steps are drawn once.
  void learning_rates() {
    size_t groups = 0;
    for (const StepRecord& step : records_.steps) groups = std::max(groups, step.lr.size());
    const auto same = [&](size_t a, size_t b) {
      return std::all_of(records_.steps.begin(), records_.steps.end(), [&](const StepRecord& step) {
        return a < step.lr.size() && b < step.lr.size() ? step.lr[a] == step.lr[b] : a >= step.lr.size() && b >= step.lr.size();
      });
    };
    std::vector<std::vector<size_t>> kinds;  // groups with the same rates
    size_t left_out = 0;
    for (size_t group = 0; group < groups; ++group) {
      const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return same(kind[0], group); });
      if (found != kinds.end())
        found->push_back(group);
      else if (kinds.size() < kMaxGroups)
        kinds.push_back({group});
      else
        ++left_out;
    }
    if (left_out > 0)
      charts_.notes.push_back("the learning rates of " + plural(int64_t(left_out), "more group") + " are not drawn");
    if (kinds.empty()) return;
    Chart chart{.id = "lr", .title = kinds.size() == 1 ? "Learning rate" : "Learning rates", .scale = Chart::Scale::kFromZero};
    if (kinds.size() == 1 && groups > 1) chart.note = "of all " + std::to_string(groups) + " groups";
    for (const auto& kind : kinds) {
      const size_t group = kind[0];
      ChartLine line{.colour = static_cast<int>(chart.lines.size()), .series = series(buckets_, rate_of_group(group))};
      if (kinds.size() > 1)
        line.name = "group " + std::to_string(group) + (kind.size() > 1 ? " +" + std::to_string(kind.size() - 1) : "");
      chart.lines.push_back(std::move(line));
    }
    charts_.all.push_back(std::move(chart));
  }

  void gradient_norm() {
    Chart* chart = add({.id = "grad-norm", .title = "Gradient norm", .scale = Chart::Scale::kFromZero},
                       [](const StepRecord& step) { return step.grad_norm; });
    if (!chart) return;
    for (const ConfigRow& row : records_.runs.back().config) {
      if (const double limit = row.key == "gradient_clipping" ? std::atof(row.value.c_str()) : 0; limit > 0) {
        chart->thresholds.push_back(limit);
        chart->note = "clipped above " + number_text(limit) + " (dashed)";
      }
    }
  }

  void loss_scale() {
    const bool is_used = std::any_of(records_.steps.begin(), records_.steps.end(),
                                     [](const StepRecord& step) { return step.loss_scale.value_or(1) != 1; });
    if (is_used)
      add({.id = "loss-scale", .title = "Loss scale", .scale = Chart::Scale::kPowersOfTwo},
          [](const StepRecord& step) { return step.loss_scale; });
  }

  // Wall time outside the phases is spent by the program itself, on data, evaluation and
  // checkpoints.
  void step_time() {
    const StepValue seconds = [](const StepRecord& step) { return step.seconds; };
    const Series whole = series(buckets_, seconds);
    if (whole.known == 0) return;
    const double factor = whole.mean() < 1 ? 1e3 : 1;
    Chart chart{.id = "step-time",
                .title = "Step time",
                .unit = factor > 1 ? "ms" : "s",
                .scale = Chart::Scale::kFromZero,
                .is_stack = true};
    for (size_t phase = 0; phase < records_.phase_names.size(); ++phase) {
      const Kind kind = phase_kind(records_.phase_names[phase], phase);
      ChartLine line{.name = kind.name,
                     .colour = kind.colour,
                     .series = series(buckets_, times(phase_of(phase), factor)),
                     .meaning = kind.meaning};
      if (line.series.high > 0) chart.lines.push_back(std::move(line));
    }
    const auto rest = [](const StepRecord& step) -> std::optional<double> {
      if (!step.seconds) return std::nullopt;
      double left = *step.seconds;
      for (const auto& [phase, value] : step.phases) left -= value;
      return std::max(0.0, left);
    };
    const bool is_alone = chart.lines.empty();
    ChartLine other{.name = is_alone ? "step" : "other",
                    .colour = is_alone ? 0 : kOtherColour,
                    .series = series(buckets_, times(rest, factor)),
                    .meaning = is_alone ? "" : "the program's own time: its data and its loop"};
    if (other.series.high > 0) chart.lines.push_back(std::move(other));
    if (!chart.lines.empty()) charts_.all.push_back(std::move(chart));
  }

  void throughput() {
    const size_t counts = std::min(records_.count_names.size(), kMaxCounts);
    for (size_t i = 0; i < counts; ++i)
      add({.id = "rate-" + std::to_string(i), .title = records_.count_names[i] + "/s", .scale = Chart::Scale::kFromZero},
          rate_of(i));
    if (counts == 0) add({.id = "rate", .title = "samples/s", .scale = Chart::Scale::kFromZero}, samples_rate());
    leave_out("counts", records_.count_names, counts);
  }

  void memory() {
    const StepValue bytes = [](const StepRecord& step) { return step.memory_bytes; };
    const Series whole = series(buckets_, bytes);
    if (whole.known == 0) return;
    const double gib = 1024.0 * 1024 * 1024;
    const bool is_large = whole.high >= gib;
    add({.id = "memory",
         .title = "Memory of rank 0",
         .unit = is_large ? "GiB" : "MiB",
         .note = "resident",
         .scale = Chart::Scale::kFromZero},
        times(bytes, is_large ? 1 / gib : 1024 / gib));
  }

  // Each kind is drawn at its own peak in the step; the sum of these peaks is slightly more than
  // the overall peak.
  void memory_by_kind() {
    double high = 0;
    for (size_t kind = 0; kind < records_.memory_names.size(); ++kind)
      high = std::max(high, series(buckets_, memory_of(kind)).high);
    if (high <= 0) return;
    const double gib = 1024.0 * 1024 * 1024;
    const bool is_large = high >= gib;
    Chart chart{.id = "memory-kinds",
                .title = "Memory by kind",
                .unit = is_large ? "GiB" : "MiB",
                .note = "peaks of rank 0",
                .scale = Chart::Scale::kFromZero,
                .is_stack = true};
    for (size_t kind = 0; kind < records_.memory_names.size(); ++kind) {
      const Kind known = memory_kind(records_.memory_names[kind], kind);
      ChartLine line{.name = known.name,
                     .colour = known.colour,
                     .series = series(buckets_, times(memory_of(kind), is_large ? 1 / gib : 1024 / gib)),
                     .meaning = known.meaning};
      if (line.series.high > 0) chart.lines.push_back(std::move(line));
    }
    charts_.all.push_back(std::move(chart));
  }

  void values() {
    const size_t count = std::min(records_.value_names.size(), kMaxValues);
    for (size_t i = 0; i < count; ++i)
      if (i != drawn_with_loss_) add({.id = "value-" + std::to_string(i), .title = records_.value_names[i]}, value_of(i));
    leave_out("values", records_.value_names, count);
  }

  void leave_out(const std::string& what, const std::vector<std::string>& names, size_t drawn) {
    if (names.size() <= drawn) return;
    constexpr size_t kShown = 10;
    std::vector<std::string> left(names.begin() + static_cast<std::ptrdiff_t>(drawn), names.end());
    const size_t count = left.size();
    if (count > kShown) left.resize(kShown), left.push_back("...");
    charts_.notes.push_back(std::to_string(count) + " more of the program's " + what + " are not drawn: " + join(left, ", "));
  }

  const Records& records_;
  const Buckets& buckets_;
  Charts charts_;
  std::optional<size_t> drawn_with_loss_;  // the value that is the validation loss
};

}  // namespace

StepValue loss_of() {
  return [](const StepRecord& step) { return step.loss; };
}

StepValue rate_of(size_t count) {
  return [count](const StepRecord& step) { return per_second(in(step.counts, count), step); };
}

StepValue samples_rate() {
  return [](const StepRecord& step) {
    return per_second(step.samples > 0 ? std::optional(static_cast<double>(step.samples)) : std::nullopt, step);
  };
}

StepValue times(const StepValue& extract, double factor) {
  return [=](const StepRecord& step) {
    const auto value = extract(step);
    return value ? std::optional(*value * factor) : value;
  };
}

StepValue phase_of(size_t phase) {
  return
      [phase](const StepRecord& step) { return step.seconds ? std::optional(in(step.phases, phase).value_or(0)) : std::nullopt; };
}

StepValue memory_of(size_t kind) {
  return [kind](const StepRecord& step) { return in(step.memory, kind); };
}

StepValue value_of(size_t value) {
  return [value](const StepRecord& step) { return in(step.values, value); };
}

StepValue rate_of_group(size_t group) {
  return [group](const StepRecord& step) { return group < step.lr.size() ? std::optional(step.lr[group]) : std::nullopt; };
}

// The Trainer records "eval/loss", a Trial "validation/loss"; a program's own loop may use any of
// these names.
std::optional<size_t> validation_value(const Records& records) {
  for (size_t i = 0; i < records.value_names.size(); ++i) {
    std::string name = records.value_names[i];
    std::replace(name.begin(), name.end(), '/', '_');
    if (name == "eval_loss" || name == "val_loss" || name == "validation_loss" || name == "validation_validation_loss") return i;
  }
  return std::nullopt;
}

bool allows_log(const Series& series) { return series.known > 0 && series.low > 0 && series.high / series.low < 1e30; }

double half_life(const Records& records) { return std::max(2.0, std::floor(static_cast<double>(records.steps.size()) / 80)); }

Charts charts_of(const Records& records, const Buckets& buckets) {
  if (records.steps.empty()) return {};
  return ChartBuilder(records, buckets).take();
}

}  // namespace gannet::report
