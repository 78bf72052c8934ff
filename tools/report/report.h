// The report of a training run: one self-contained HTML file, or a summary for the terminal.
//
//   const Report report("run1/metrics.jsonl");
//   write_file("report.html", report.html());
//   std::cout << report.text();
//
// Its parts are a reader of the metrics file (records.h), series over buckets of steps (series.h),
// the list of charts (charts.h), one chart as HTML (chart.h), tables (tables.h), and the page's own
// files report.html.in, report.css, charts.js, jump.js, search.js and view.js, which the build embeds.
// compare.h is the report of several runs.
#pragma once

#include <string>
#include <vector>

#include "report/records.h"

namespace gannet::report {

class Report {
 public:
  // Throws the errors of read_records().
  explicit Report(const std::string& path) : records_(read_records(path)) {}

  const Records& records() const { return records_; }
  std::string html() const;
  std::string text() const;                  // a table, and the loss as a sparkline
  std::vector<std::string> summary() const;  // three lines

 private:
  Records records_;
};

}  // namespace gannet::report
