// One chart of the report: its values and how they are drawn. charts.js draws it, with dygraphs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/series.h"

namespace gannet::report {

struct ChartLine {
  std::string name{};  // "" if the chart has one line
  int colour = 0;      // an index into the page's palette
  Series series{};
  std::vector<Point> smooth{};   // by bucket; if it is not empty, the series itself is drawn faintly
  std::string meaning{};         // of the name, for its tooltip
  bool is_sparse = false;        // few steps have a value: each is drawn as a point
  std::optional<size_t> best{};  // the bucket of the smallest value, which gets a marker
};

struct Chart {
  enum class Scale { kLinear, kFromZero, kPowersOfTwo };

  std::string id{}, title{}, unit{};
  std::string note{};  // a few words after the title
  Scale scale = Scale::kLinear;
  bool is_stack = false;
  bool is_wide = false;
  bool has_log = false;         // offers a switch for a logarithmic axis
  bool ends_in_values = false;  // a line's end has its last value, even if the line has a name
  std::vector<ChartLine> lines{};
  std::vector<double> thresholds{};  // drawn as dashed lines, where the axis reaches them
};

// A figure with an empty plot; its caption has places for the values under the pointer.
std::string chart_html(const Chart& chart);

}  // namespace gannet::report
