// Compares two to six runs: charts with a line for each run, and tables with a column for each.
//
//   const Comparison comparison({"a.jsonl", "b.jsonl"});
//   write_file("report.html", comparison.html());
//   std::cout << comparison.text();
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/charts.h"

namespace gannet::report {

constexpr size_t kMaxCompared = 6;  // runs, each with a colour of its own

struct ComparedRun {
  std::string name;  // the part of its path that distinguishes it from the others
  Records records;
};

class Comparison {
 public:
  // Throws the errors of read_records(), and Error(kArgument) for more than kMaxCompared files, for
  // one that is named twice, and for one without a step.
  explicit Comparison(const std::vector<std::string>& paths);

  const std::vector<ComparedRun>& runs() const { return runs_; }
  std::string html() const;
  std::string text() const;                  // for the terminal: a column for each run
  std::vector<std::string> summary() const;  // a line for each run

  // All steps that occur in any run, each once; a step that some run skipped counts as skipped.
  const Records& steps() const { return steps_; }
  // The record of steps().steps[index] in a run, or null if the run does not have this step.
  const StepRecord* in_run(size_t run, size_t index) const;
  // The series of a run over the buckets of steps(). `extract` may be null.
  Series series_of(size_t run, const Buckets& buckets, const StepValue& extract) const;

 private:
  void join_steps();

  std::vector<ComparedRun> runs_;
  Records steps_;
  std::vector<std::vector<size_t>> index_;  // [run][index of a step]: the run's record, or SIZE_MAX
};

// The charts that at least two runs share. The notes name the others.
Charts compared_charts(const Comparison& comparison, const Buckets& buckets);

// Tables with a column or rows for each run.
std::string compared_tiles(const Comparison& comparison);
std::string phases_by_run(const Comparison& comparison);
std::string config_differences(const Comparison& comparison);
std::string machine_differences(const Comparison& comparison);

}  // namespace gannet::report
