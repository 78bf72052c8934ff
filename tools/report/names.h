// Names for the metrics files that a page compares.
#pragma once

#include <string>
#include <vector>

namespace gannet::report {

// The part of each path that tells it from the others: {"runs/a/metrics.jsonl", "runs/b/metrics.jsonl"}
// are "a" and "b", {"a.jsonl", "b.jsonl"} too. The paths are those of different files.
std::vector<std::string> run_names(const std::vector<std::string>& paths);

}  // namespace gannet::report
