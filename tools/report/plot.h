// The plot of a chart: its curves as SVG, its labels as HTML around them.
#pragma once

#include <string>

#include "report/axis.h"
#include "report/chart.h"

namespace gannet::report {

// `label` describes the plot in a sentence, for readers who cannot see it.
std::string plot_html(const Chart& chart, const Buckets& buckets, const Marks& marks, const Axis& axis,
                      const std::string& classes, const std::string& label);

}  // namespace gannet::report
