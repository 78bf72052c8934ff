// The strip above the charts: the steps of each run, and the events between them. The page's script
// adds the skipped steps, and moves the strip when a chart is zoomed.
#pragma once

#include <string>

#include "report/compare.h"

namespace gannet::report {

std::string timeline_html(const Records& records, const Buckets& places);
std::string compared_timeline_html(const Comparison& comparison, const Buckets& places);

}  // namespace gannet::report
