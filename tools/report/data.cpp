#include "report/data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "report/format.h"

namespace gannet::report {
namespace {

// Numbers as floats: written with the fewest digits that read back as the same float.
using Json = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool, int64_t, uint64_t, float>;

constexpr size_t kExactNumbers = 2'500'000;  // up to this many numbers, each step has a place of its own
constexpr size_t kPlaces = 20'000;           // the places of a longer run, whose lines have three numbers per place
constexpr size_t kPlaceNumbers = 3'000'000;  // fewer places, if they would have more numbers than this
constexpr size_t kFewestPlaces = 2'000;
constexpr size_t kReasons = 500;
constexpr size_t kShownReason = 200;

std::string clipped_reason(const std::string& reason) {
  if (reason.size() <= kShownReason) return reason;
  size_t end = kShownReason;
  while (end > 0 && (static_cast<unsigned char>(reason[end]) & 0xC0) == 0x80) --end;
  return reason.substr(0, end) + " ...";
}

// Rounds to five digits, one more than the page shows. Whole numbers below 1e7, which it shows in
// full, stay exact.
Json rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0.0f;
  const double size = std::fabs(value), digits = std::pow(10.0, std::floor(std::log10(size)) - 4);
  const double unit = size < 1e7 ? std::min(digits, 1.0) : digits;
  return static_cast<float>(std::round(value / unit) * unit);
}

Json numbers(const std::vector<Point>& points, double Point::* member) {
  Json all = Json::array();
  for (const Point& point : points) all.push_back(point.is_known ? rounded(point.*member) : Json());
  return all;
}

Json line_of(const ChartLine& line, bool has_extremes) {
  const std::vector<Point>& points = line.series.points;
  Json json = {{"name", line.name}, {"colour", line.colour}, {"mean", numbers(points, &Point::mean)}};
  if (has_extremes) json["low"] = numbers(points, &Point::low), json["high"] = numbers(points, &Point::high);
  json["bad"] = Json::array();
  for (size_t p = 0; p < points.size(); ++p)
    if (points[p].bad > 0) json["bad"].push_back(p);
  if (!line.smooth.empty()) json["smooth"] = numbers(line.smooth, &Point::mean);
  if (line.is_sparse) json["sparse"] = true;
  if (line.best) json["best"] = {*line.best, rounded(line.series.low)};
  return json;
}

Json chart_of(const Chart& chart, bool is_exact) {
  const char* const scales[] = {"linear", "zero", "two"};
  Json json = {{"scale", scales[static_cast<int>(chart.scale)]}, {"stack", chart.is_stack}, {"lines", Json::array()}};
  json["thresholds"] = chart.thresholds;
  if (chart.ends_in_values) json["ends"] = true;
  for (const ChartLine& line : chart.lines) json["lines"].push_back(line_of(line, !is_exact && !chart.is_stack));
  return json;
}

void add_skipped(const Records& records, const Buckets& places, Json& json) {
  json["skipped"] = Json::array(), json["reasons"] = Json::array();
  std::map<std::string, size_t> known;
  for (size_t i = 0, last = places.ranges().size(); i < records.steps.size(); ++i) {
    if (records.steps[i].applied) continue;
    const size_t place = places.bucket_of(i);
    if (place == last) {
      ++json["skipped"].back()[1].get_ref<int64_t&>();
      continue;
    }
    last = place;
    const std::string reason = clipped_reason(records.steps[i].reason);
    auto found = known.find(reason);
    if (found == known.end() && known.size() < kReasons && !reason.empty()) {
      found = known.emplace(reason, known.size()).first;
      json["reasons"].push_back(reason);
    }
    const int64_t index = found == known.end() ? -1 : static_cast<int64_t>(found->second);
    json["skipped"].push_back({static_cast<int64_t>(place), int64_t{1}, index});
  }
}

}  // namespace

size_t lines_of(const Records& records) {
  return 6 + std::min(records.count_names.size(), kMaxCounts) + std::min(records.value_names.size(), kMaxValues) +
         records.memory_names.size();
}

Buckets places_of(const Records& records) {
  const size_t groups = records.steps.empty() ? 0 : std::min(records.steps.back().lr.size(), kMaxGroups);
  return places_of(records.steps, lines_of(records) + groups + records.phase_names.size());
}

Buckets places_of(const std::vector<StepRecord>& steps, size_t lines) {
  if (steps.empty() || steps.size() * lines > kExactNumbers)
    return Buckets(steps, std::clamp(kPlaceNumbers / (3 * lines), kFewestPlaces, kPlaces));
  return Buckets(steps, static_cast<size_t>(steps.back().step - steps.front().step + 1));
}

std::string data_json(const Records& records, const Charts& charts, const Buckets& places, bool has_time) {
  Json json = {{"begin", Json::array()}, {"runs", Json::array()}, {"resumed", Json::array()}};
  int64_t begin = 0, end = 0;
  for (size_t p = 0; p < places.ranges().size(); ++p) {
    const Buckets::Range& range = places.ranges()[p];
    const StepRecord& first = records.steps[range.begin];
    const StepRecord& last = records.steps[range.end - 1];
    json["begin"].push_back(first.step - begin);
    if (!places.is_exact()) json["end"].push_back(last.step - end);
    begin = first.step, end = last.step;
    if (has_time) json["time"].push_back(static_cast<int64_t>(last.time));
    if (json["runs"].empty() || json["runs"].back()[1] != last.run + 1) json["runs"].push_back({p, last.run + 1});
  }
  for (size_t i = 1; i < records.steps.size(); ++i)
    if (const size_t run = records.steps[i].run; run != records.steps[i - 1].run)
      json["resumed"].push_back({records.steps[i].step, "run " + std::to_string(run + 1)});
  add_skipped(records, places, json);
  json["charts"] = Json::object();
  for (const Chart& chart : charts.all) json["charts"][chart.id] = chart_of(chart, places.is_exact());
  return script_json(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace gannet::report
