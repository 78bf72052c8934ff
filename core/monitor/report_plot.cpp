#include "monitor/report_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "monitor/report_format.h"

namespace gannet::report {
namespace {

constexpr double kSize = 1000;                      // of the SVG's own coordinates, both ways
constexpr double kWideHeight = 260, kHeight = 150;  // of plots in pixels, as report.css has them
constexpr double kLabelHeight = 15;
constexpr double kNamedLayer = 0.04;  // a thinner layer of a stack has no label at its end

std::string coordinate(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value * kSize);
  std::string short_text = text;
  if (short_text.ends_with(".0")) short_text.resize(short_text.size() - 2);
  return short_text;
}

std::string percent(double part) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f%%", part * 100);
  return text;
}

std::string at(double x, double y) { return coordinate(x) + " " + coordinate(1 - y); }

std::string path(const std::string& classes, const std::string& d) { return "<path class=\"" + classes + "\" d=\"" + d + "\"/>"; }

// A stretched SVG has no circles: a line of no length with round ends is one.
std::string dot(double x, double y) { return "M" + at(x, y) + "h0"; }

class Plot {
 public:
  Plot(const Chart& chart, const Buckets& buckets, const Marks& marks, const Axis& axis)
      : chart_(chart), buckets_(buckets), marks_(marks), axis_(axis) {}

  std::string html(const std::string& classes, const std::string& label) {
    svg_ = "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"" + html_text(label) +
           "\"><title>" + html_text(chart_.title) + "</title><desc>" + html_text(label) + "</desc>";
    grid();
    if (chart_.is_stack)
      stack();
    else
      for (const ChartLine& line : chart_.lines) curve(line);
    marks();
    end_labels();
    return "<div class=\"" + classes + "\" tabindex=\"0\">" + svg_ + "</svg>" + around_ +
           "<i class=\"cursor\"></i><b class=\"cursor-step\"></b></div>\n";
  }

 private:
  void grid() {
    std::string lines;
    for (const Tick& tick : axis_.ticks()) {
      const double y = axis_.place(tick.value);
      lines += "M0 " + coordinate(1 - y) + "H1000";
      around_ += "<span class=\"y\" style=\"top:" + percent(1 - y) + "\">" + tick.label + "</span>";
    }
    svg_ += path("grid", lines);
    const auto first = static_cast<double>(buckets_.first()), last = static_cast<double>(buckets_.last());
    const Axis steps = Axis::steps(first, last);
    for (const Tick& tick : steps.ticks())
      around_ += "<span class=\"x\" style=\"left:" + percent(buckets_.place(tick.value)) + "\">" + tick.label + "</span>";
    for (const double value : chart_.thresholds)
      if (value <= axis_.high()) svg_ += path("threshold", "M0 " + coordinate(1 - axis_.place(value)) + "H1000");
  }

  double x(size_t bucket) const { return buckets_.ranges()[bucket].x; }

  // Through all means; it is interrupted at values that are not finite.
  std::string through(const std::vector<Point>& points) const {
    std::string d;
    bool is_open = false;
    for (size_t b = 0; b < points.size(); ++b) {
      if (points[b].is_known) {
        d += (is_open ? "L" : "M") + at(x(b), axis_.place(points[b].mean));
        is_open = true;
      } else if (points[b].bad > 0) {
        is_open = false;
      }
    }
    return d;
  }

  // From the smallest to the largest value of each bucket.
  std::string envelope(const std::vector<Point>& points) const {
    std::string d, back;
    for (size_t b = 0; b < points.size(); ++b) {
      if (!points[b].is_known) continue;
      d += (d.empty() ? "M" : "L") + at(x(b), axis_.place(points[b].high));
      back = "L" + at(x(b), axis_.place(points[b].low)) + back;
    }
    return d.empty() ? d : d + back + "Z";
  }

  void curve(const ChartLine& line) {
    const std::vector<Point>& points = line.series.points;
    if (!buckets_.is_exact()) svg_ += path("envelope " + colour(line), envelope(points));
    svg_ += path((line.smooth.empty() ? "line " : "line raw ") + colour(line), through(points));
    if (!line.smooth.empty()) svg_ += path("line " + colour(line), through(line.smooth));
    if (line.series.known == 1)
      for (size_t b = 0; b < points.size(); ++b)
        if (points[b].is_known) svg_ += path("dot " + colour(line), dot(x(b), axis_.place(points[b].mean)));
    std::string above;
    for (size_t b = 0; b < points.size(); ++b) {
      if (points[b].bad > 0) around_ += "<span class=\"bad\" style=\"left:" + percent(x(b)) + "\">×</span>";
      if (points[b].is_known && points[b].high > axis_.high()) above += "M" + coordinate(x(b)) + " 0V25";
    }
    if (!above.empty()) svg_ += path("above", above);
    if (points.empty()) return;
    const std::vector<Point>& ending = line.smooth.empty() ? points : line.smooth;
    for (size_t b = ending.size(); b-- > 0;) {
      if (!ending[b].is_known) continue;
      ends_.push_back({1 - axis_.place(ending[b].mean), line.name.empty() ? number_text(ending[b].mean) : line.name, &line});
      break;
    }
  }

  void stack() {
    const size_t count = buckets_.ranges().size();
    std::vector<double> base(count, 0), top(count, 0);
    for (const ChartLine& line : chart_.lines) {
      std::string d, back;
      for (size_t b = 0; b < count; ++b) {
        top[b] = base[b] + (line.series.points[b].is_known ? std::max(0.0, line.series.points[b].mean) : 0);
        // One step alone is a bar.
        const double left = count == 1 ? 0.4 : x(b), right = count == 1 ? 0.6 : x(b);
        d += (d.empty() ? "M" : "L") + at(left, axis_.place(top[b]));
        if (count == 1) d += "L" + at(right, axis_.place(top[b]));
        back = "L" + at(left, axis_.place(base[b])) + back;
        if (count == 1) back = "L" + at(right, axis_.place(base[b])) + back;
      }
      svg_ += path("layer " + colour(line), d + back + "Z");
      if (axis_.place(top.back()) - axis_.place(base.back()) > kNamedLayer)
        ends_.push_back({1 - (axis_.place(base.back()) + axis_.place(top.back())) / 2, line.name, &line});
      base = top;
    }
    std::string above;
    for (size_t b = 0; b < count; ++b)
      if (base[b] > axis_.high()) above += "M" + coordinate(x(b)) + " 0V25";
    if (!above.empty()) svg_ += path("above", above);
  }

  void marks() {
    std::string skipped, resumed;
    for (const double place : marks_.skipped) skipped += "M" + coordinate(place) + " 1000V955";
    if (!skipped.empty()) svg_ += path("skipped", skipped);
    for (const auto& [place, label] : marks_.resumed) {
      resumed += "M" + coordinate(place) + " 0V1000";
      if (chart_.is_wide)
        around_ += "<span class=\"resumed-label\" style=\"left:" + percent(place) + "\">" + html_text(label) + "</span>";
    }
    if (!resumed.empty()) svg_ += path("resumed", resumed);
  }

  // Each at its line's end, moved apart where they would overlap.
  void end_labels() {
    const double gap = kLabelHeight / (chart_.is_wide ? kWideHeight : kHeight);
    std::stable_sort(ends_.begin(), ends_.end(), [](const End& a, const End& b) { return a.top < b.top; });
    for (size_t i = 1; i < ends_.size(); ++i) ends_[i].top = std::max(ends_[i].top, ends_[i - 1].top + gap);
    double limit = 1;
    for (size_t i = ends_.size(); i-- > 0; limit = ends_[i].top - gap) ends_[i].top = std::min(ends_[i].top, limit);
    for (const End& end : ends_)
      around_ +=
          "<span class=\"end\" style=\"top:" + percent(end.top) + "\">" + chip(*end.line) + html_text(end.text) + "</span>";
  }

  struct End {
    double top;
    std::string text;
    const ChartLine* line;
  };

  const Chart& chart_;
  const Buckets& buckets_;
  const Marks& marks_;
  const Axis& axis_;
  std::string svg_, around_;
  std::vector<End> ends_;
};

}  // namespace

std::string plot_html(const Chart& chart, const Buckets& buckets, const Marks& marks, const Axis& axis,
                      const std::string& classes, const std::string& label) {
  return Plot(chart, buckets, marks, axis).html(classes, label);
}

}  // namespace gannet::report
