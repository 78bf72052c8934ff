// The data that the page's script draws, as JSON. docs/report.md states how many steps it keeps.
//
//   {"begin": [1, 1, 1],          the first step of each place, as differences; also "end" if a place has several steps
//    "time": [0, 3, 5],           seconds since the start of the place's run, at its last step
//    "runs": [[0, 1], [2, 2]],    from this place on, this run
//    "skipped": [[1, 1, 0]],      place, its number of skipped steps, the reason for the first: an index into "reasons", or -1
//    "reasons": ["an inf in 'wte'"],
//    "resumed": [[3, "run 2"]],   the first step of each later run
//    "charts": {"loss": {"scale": "linear", "stack": false, "thresholds": [],
//      "lines": [{"name": "", "colour": 0, "mean": [5.1, null, 3.2], "bad": [1], "smooth": [5.0, 4.1, 3.2]}]}}}
//
// A line may also have "sparse": true (few places have a value) and "best": [2, 3.2] (the place and
// the value that get a marker), and a chart "ends": true (the ends of its lines show values).
// Compared runs have no "time".
//
// A place is one step, or several steps in a long run; its line then also has "low" and "high".
// null: no finite value; "bad": the places with NaN or infinite values.
#pragma once

#include <string>

#include "report/charts.h"

namespace gannet::report {

size_t lines_of(const Records& records);  // of the charts, about, without phases and learning rates
Buckets places_of(const Records& records);
Buckets places_of(const std::vector<StepRecord>& steps, size_t lines);  // lines: how many values each step has, about
std::string data_json(const Records& records, const Charts& charts, const Buckets& places, bool has_time = true);

}  // namespace gannet::report
