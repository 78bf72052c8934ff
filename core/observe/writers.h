// The available monitors.
#pragma once

#include <memory>
#include <string>

#include "observe/monitor.h"

namespace gannet::observe {

// JSON lines, schema 1 (docs/metrics.md).
std::unique_ptr<Writer> metrics_file(const std::string& path);
// DeepSpeed's format: a file per tag with the head "step,<last part of the tag>" and a row per
// step. The step is the number of samples seen.
std::unique_ptr<Writer> csv_files(const std::string& folder);
// An event file for TensorBoard; its steps are samples as well.
std::unique_ptr<Writer> tensorboard_events(const std::string& folder);

}  // namespace gannet::observe
