// The strip above the charts: the steps of each run, and the events between them.
#pragma once

#include <string>

#include "report/chart.h"

namespace gannet::report {

// The charts' marks: skipped steps, once per bucket, and the starts of later runs.
Marks marks_of(const Records& records, const Buckets& buckets);
std::string timeline_html(const Records& records, const Buckets& buckets);

}  // namespace gannet::report
