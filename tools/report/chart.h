// One chart of the report: what is drawn of which values. report.js draws it, with dygraphs.
#pragma once

#include <string>
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
  bool has_log = false;  // a switch for a logarithmic axis
  std::vector<ChartLine> lines{};
  std::vector<double> thresholds{};  // dashed, where the axis reaches them
};

// A figure with a caption that has places for the values under the pointer, and an empty plot.
std::string chart_html(const Chart& chart);

}  // namespace gannet::report
