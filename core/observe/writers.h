// The available monitors.
#pragma once

#include <memory>
#include <string>

#include "observe/monitor.h"

namespace gannet::observe {

// Writes the metrics file: JSON lines, schema 1 (docs/metrics.md).
std::unique_ptr<Writer> metrics_file(const std::string& path);
// Writes CSV files in DeepSpeed's format: a file per tag, with the header "step,<last part of the
// tag>" and one row per step. The column "step" is the number of samples seen.
std::unique_ptr<Writer> csv_files(const std::string& folder);
// Writes an event file for TensorBoard. Its steps are numbers of samples as well.
std::unique_ptr<Writer> tensorboard_events(const std::string& folder);

}  // namespace gannet::observe
