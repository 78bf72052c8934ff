// One chart of the report as HTML: a figure with a caption that carries names and values, and a plot.
//
// The plot's curves are an SVG that is stretched to whatever width the page has (strokes keep theirs); its labels are HTML next
// to it, placed in percent. So it needs no script, and stays readable on a narrow screen.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/series.h"

namespace gannet::report {

struct ChartLine {
  std::string name;  // "" where the chart has one line
  int colour = 0;    // of the page's palette
  Series series;
  std::vector<Point> smooth;  // by bucket; empty: none. The series itself is then drawn faintly
};

struct Chart {
  enum class Scale { kLinear, kFromZero, kPowersOfTwo };

  std::string id{}, title{}, unit{};
  std::string note{};  // a few words behind the title
  Scale scale = Scale::kLinear;
  bool is_stack = false;
  bool is_wide = false;
  bool has_log = false;  // a second plot with a logarithmic axis, and a switch
  std::vector<ChartLine> lines{};
  std::vector<double> thresholds{};  // dashed, where the axis reaches them
};

// Marks that all charts show in addition to their lines: positions from 0 to 1.
struct Marks {
  std::vector<double> skipped;
  std::vector<std::pair<double, std::string>> resumed;  // with a label
};

std::string chart_html(const Chart& chart, const Buckets& buckets, const Marks& marks);

std::string colour(const ChartLine& line);  // its class
std::string chip(const ChartLine& line);    // a square of its colour before its name; nothing where a line stands alone

// A value of a line, as the caption shows it: "2.31", or "2.31 (2.1–2.6)" where its bucket has several steps.
std::string readout(const Point& point, bool is_exact);

}  // namespace gannet::report
