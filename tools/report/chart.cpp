#include "report/chart.h"

#include <algorithm>

#include "report/format.h"
#include "report/plot.h"

namespace gannet::report {
namespace {

// The ends of what is drawn. An axis from zero leaves out a few values far above all others: they are marked at the top.
struct Extent {
  double low = 0, high = 0;
  int64_t above = 0;  // buckets
  double highest = 0;
};

Extent extent(const Chart& chart) {
  Extent all;
  std::vector<double> highs;
  bool is_first = true;
  if (chart.is_stack) {
    highs.assign(chart.lines.empty() ? 0 : chart.lines[0].series.points.size(), 0);
    for (const ChartLine& line : chart.lines)
      for (size_t b = 0; b < highs.size(); ++b) highs[b] += std::max(0.0, line.series.points[b].mean);
    for (const double high : highs) all.high = std::max(all.high, high);
  } else {
    for (const ChartLine& line : chart.lines) {
      if (line.series.known == 0) continue;
      all.low = is_first ? line.series.low : std::min(all.low, line.series.low);
      all.high = is_first ? line.series.high : std::max(all.high, line.series.high);
      is_first = false;
      for (const Point& point : line.series.points)
        if (point.is_known) highs.push_back(point.high);
    }
  }
  all.highest = all.high;
  if (chart.scale != Chart::Scale::kFromZero) return all;
  constexpr size_t kEnough = 20;
  const double usual = highs.size() < kEnough ? all.high : quantile(highs, 0.97) * 1.1;
  if (usual > 0 && all.high > 2.5 * usual) {
    all.high = usual;
    for (const double high : highs) all.above += high > usual;
  }
  all.low = std::min(all.low, 0.0);
  return all;
}

Axis axis_of(const Chart& chart, const Extent& extent) {
  if (chart.scale == Chart::Scale::kPowersOfTwo && extent.low > 0) return Axis::powers_of_two(extent.low, extent.high);
  return Axis::linear(extent.low, extent.high, chart.is_wide ? 6 : 4);
}

std::string description(const Chart& chart) {
  std::string text =
      chart.title + (chart.unit.empty() ? "" : " in " + chart.unit) + (chart.is_stack ? ", stacked" : "") + " by step. ";
  for (const ChartLine& line : chart.lines) {
    const Series& series = line.series;
    if (series.known == 0) continue;
    text +=
        (line.name.empty() ? "" : line.name + ": ") + number_text(series.first) + " at step " + with_commas(series.first_step);
    if (series.known > 1)
      text += ", " + number_text(series.last) + " at step " + with_commas(series.last_step) + "; smallest " +
              number_text(series.low) + ", largest " + number_text(series.high);
    text += ". ";
  }
  return text;
}

std::string caption(const Chart& chart, const Buckets& buckets, const Extent& extent) {
  std::string html = "<figcaption><h3>" + html_text(chart.title);
  if (!chart.unit.empty()) html += " <small>" + html_text(chart.unit) + "</small>";
  html += "</h3>";
  int64_t bad = 0;
  for (const ChartLine& line : chart.lines) bad += line.series.bad;
  std::string note = html_text(chart.note);
  const auto append = [&note](const std::string& text) { note += (note.empty() ? "" : "; ") + text; };
  if (extent.above > 0)
    append(plural(extent.above, buckets.is_exact() ? "step" : "place") + " above the axis, up to " + number_text(extent.highest));
  if (bad > 0) append("not finite at " + plural(bad, "step") + " (×)");
  html += "<span class=\"note\">" + note + "</span>";
  if (chart.has_log) html += "<label for=\"log-" + chart.id + "\">log</label>";
  html += "<span class=\"values\">";
  const size_t last = buckets.ranges().size() - 1;
  for (const ChartLine& line : chart.lines) {
    html += "<span>" + chip(line) + html_text(line.name) + " <b>" +
            readout(line.series.points[last], chart.is_stack || buckets.is_exact()) + "</b></span>";
    if (!line.smooth.empty()) html += "<span>smoothed <b>" + readout(line.smooth[last], true) + "</b></span>";
  }
  return html + "</span></figcaption>";
}

}  // namespace

std::string colour(const ChartLine& line) { return "c" + std::to_string(line.colour); }

std::string chip(const ChartLine& line) { return line.name.empty() ? "" : "<i class=\"chip " + colour(line) + "\"></i>"; }

std::string readout(const Point& point, bool is_exact) {
  if (!point.is_known) return point.bad > 0 ? "not finite" : "–";
  const std::string text = number_text(point.mean);
  const std::string low = number_text(point.low), high = number_text(point.high);
  return is_exact || low == high ? text : text + " (" + low + "–" + high + ")";
}

std::string chart_html(const Chart& chart, const Buckets& buckets, const Marks& marks) {
  const Extent extent = report::extent(chart);
  const std::string label = description(chart);
  std::string html = "<figure class=\"chart" + std::string(chart.is_wide ? " wide" : "") + "\" data-chart=\"" + chart.id + "\">";
  if (chart.has_log) html += "<input type=\"checkbox\" class=\"log-switch\" id=\"log-" + chart.id + "\" autocomplete=\"off\">";
  html += caption(chart, buckets, extent);
  html += plot_html(chart, buckets, marks, axis_of(chart, extent), chart.has_log ? "plot linear" : "plot", label);
  if (chart.has_log)
    html += plot_html(chart, buckets, marks, Axis::log10(extent.low, extent.high), "plot log", label + "Logarithmic axis.");
  return html + "</figure>\n";
}

}  // namespace gannet::report
