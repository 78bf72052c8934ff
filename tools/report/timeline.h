// The strip above the charts: which run did which steps, and what happened between them.
#pragma once

#include <string>

#include "report/chart.h"

namespace gannet::report {

// What the charts mark: skipped steps, once a bucket, and where later runs begin.
Marks marks_of(const Records& records, const Buckets& buckets);
std::string timeline_html(const Records& records, const Buckets& buckets);

}  // namespace gannet::report
