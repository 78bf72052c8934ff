#include "report/compare.h"

#include <gannet/error.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "report/names.h"

namespace gannet::report {
namespace {

constexpr size_t kNone = SIZE_MAX;

void check_count(const std::vector<std::string>& paths) {
  if (paths.size() > kMaxCompared)
    throw Error(ErrorCode::kArgument,
                std::to_string(paths.size()) + " metrics files; a page compares up to " + std::to_string(kMaxCompared) + " runs",
                "name fewer files, or make several pages");
}

}  // namespace

Comparison::Comparison(const std::vector<std::string>& paths) {
  check_count(paths);
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    Records records = read_records(path);
    std::error_code error;
    for (const std::string& other : files)
      if (std::filesystem::equivalent(records.path, other, error))
        throw Error(ErrorCode::kArgument,
                    records.path == other ? records.path + " is named twice"
                                          : records.path + " and " + other + " are the same metrics file",
                    "name each run once");
    if (records.steps.empty())
      throw Error(ErrorCode::kArgument, records.path + " has no step: there is nothing to compare",
                  "leave it out, or wait until the run has made its first step");
    files.push_back(records.path);
    runs_.push_back({"", std::move(records)});
  }
  const std::vector<std::string> names = run_names(files);
  for (size_t run = 0; run < runs_.size(); ++run) runs_[run].name = names[run];
  join_steps();
}

void Comparison::join_steps() {
  std::vector<size_t> next(runs_.size(), 0);
  index_.resize(runs_.size());
  steps_.runs.emplace_back();
  for (;;) {
    int64_t step = INT64_MAX;
    for (size_t run = 0; run < runs_.size(); ++run)
      if (next[run] < runs_[run].records.steps.size()) step = std::min(step, runs_[run].records.steps[next[run]].step);
    if (step == INT64_MAX) return;
    StepRecord joined;
    joined.step = step;
    for (size_t run = 0; run < runs_.size(); ++run) {
      const auto& steps = runs_[run].records.steps;
      const bool has_step = next[run] < steps.size() && steps[next[run]].step == step;
      index_[run].push_back(has_step ? next[run] : kNone);
      if (!has_step) continue;
      const StepRecord& one = steps[next[run]++];
      if (one.applied) continue;
      joined.applied = false;
      joined.reason += (joined.reason.empty() ? "" : "; ") + runs_[run].name + (one.reason.empty() ? "" : ": " + one.reason);
    }
    steps_.steps.push_back(std::move(joined));
  }
}

const StepRecord* Comparison::in_run(size_t run, size_t index) const {
  const size_t at = index_[run][index];
  return at == kNone ? nullptr : &runs_[run].records.steps[at];
}

Series Comparison::series_of(size_t run, const Buckets& buckets, const StepValue& extract) const {
  return series(buckets, [&](const StepRecord& step) -> std::optional<double> {
    const StepRecord* one = in_run(run, static_cast<size_t>(&step - steps_.steps.data()));
    return one && extract ? extract(*one) : std::nullopt;
  });
}

}  // namespace gannet::report
