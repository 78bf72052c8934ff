// The monitors that there are.
#pragma once

#include <memory>
#include <string>

#include "observe/monitor.h"

namespace gannet::observe {

// JSON lines, schema 1 (docs/metrics.md).
std::unique_ptr<Writer> metrics_file(const std::string& path);
// DeepSpeed's: a file for each tag, "step,<last part of the tag>" and a row a step; the step is the number of samples seen.
std::unique_ptr<Writer> csv_files(const std::string& folder);
// An event file that TensorBoard reads; its steps are samples too.
std::unique_ptr<Writer> tensorboard_events(const std::string& folder);

}  // namespace gannet::observe
