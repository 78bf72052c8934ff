// One line of a metrics file, checked and typed.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "report/records.h"

namespace gannet::report {

constexpr int64_t kSchema = 1;  // the newest supported schema

// The fault of a line, as the end of a sentence that begins with its number: "is not JSON".
class BadLine : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct ParsedLine {
  enum class Kind { kRun, kStep, kValues, kEvent, kOther };
  Kind kind = Kind::kOther;
  int64_t schema = 0;  // for a run record
  RunRecord run;
  StepRecord step;  // without phases, counts, values and memory; these are below, by name
  std::vector<std::pair<std::string, double>> phases, counts, values, memory;
  EventRecord event;
};

// Throws BadLine. Unknown kinds and members are skipped: later versions may add some.
ParsedLine parse_line(const std::string& text);

}  // namespace gannet::report
