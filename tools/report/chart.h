// One chart of the report: its values and how they are drawn. charts.js draws it, with dygraphs.
#pragma once

#include <string>
#include <vector>

#include "report/series.h"

namespace gannet::report {

struct ChartLine {
  std::string name;  // "" if the chart has one line
  int colour = 0;    // an index into the page's palette
  Series series;
  std::vector<Point> smooth;  // by bucket; if it is not empty, the series itself is drawn faintly
};

struct Chart {
  enum class Scale { kLinear, kFromZero, kPowersOfTwo };

  std::string id{}, title{}, unit{};
  std::string note{};  // a few words after the title
  Scale scale = Scale::kLinear;
  bool is_stack = false;
  bool is_wide = false;
  bool has_log = false;  // offers a switch for a logarithmic axis
  std::vector<ChartLine> lines{};
  std::vector<double> thresholds{};  // drawn as dashed lines, where the axis reaches them
};

// A figure with an empty plot; its caption has places for the values under the pointer.
std::string chart_html(const Chart& chart);

}  // namespace gannet::report
