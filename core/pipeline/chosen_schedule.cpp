#include "pipeline/chosen_schedule.h"

#include <gannet/error.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "pipeline/alive.h"
#include "pipeline/built_in.h"
#include "pipeline/instructions.h"
#include "pipeline/validate.h"

namespace gannet::pipeline {

ChosenSchedule::ChosenSchedule(const ScheduleConfig& config, const pipe::Options& options, uint32_t stages, int64_t micro_batches)
    : source_(formatted("gannet.pipeline.schedule: \"{}\"", printable(config.schedule))),
      memory_limit_(config.memory_limit),
      stages_(stages) {
  const std::string& configured = config.schedule;
  if (options.schedule) {
    source_ = "pipe::Options::schedule";
    make_ = options.schedule;
  } else if (configured.ends_with(".csv")) {
    from_file_ = read_csv(configured);
  } else if (configured == "auto" && stages > 1) {
    is_auto_ = true;
  } else {
    // A single stage waits for no other, and gains nothing from chunks or split backwards.
    name_ = stages == 1 && configured != "gpipe" ? "data-parallel" : configured;
    chunks_ = stages == 1 ? std::nullopt : options.chunks;
  }
  const bool is_one_stage_of_auto = stages == 1 && configured == "auto" && !options.schedule;
  if (memory_limit_ && !is_auto_ && !is_one_stage_of_auto)
    throw Error(ErrorCode::kConfig, formatted("gannet.pipeline.memory_limit is set, and {} keeps what its order needs", source_),
                "set gannet.pipeline.schedule to \"auto\", or leave the limit out");
  if (name_.empty() && options.chunks)
    throw Error(ErrorCode::kConfig, formatted("pipe::Options asks for {} chunks, and {} has its own", *options.chunks, source_),
                "leave chunks out");
  stage_of_ = checked(micro_batches).schedule.rank_of;
}

// Until times are measured, all passes of a stage are assumed to take equally long. The first
// schedule also fixes the stage of each part, since layers do not move later.
FoundSchedule ChosenSchedule::searched(int64_t micro_batches) const {
  if (stage_of_.empty()) return search({.stages = stages_, .micro_batches = micro_batches, .memory = memory_limit_});
  const Schedule parts{std::vector<std::vector<Action>>(stages_), stage_of_};
  return search_order(stage_of_, micro_batches, times_ ? *times_ : even_times(parts, {}), memory_limit_);
}

std::string ChosenSchedule::set_times(Times times, int64_t micro_batches) {
  times_ = std::move(times);
  checked_.clear();
  const FoundSchedule found = searched(micro_batches);
  keep(micro_batches, found.schedule);
  std::string text = formatted("pipeline schedule, chosen for the measured times: {}, {:.1f} ms a step, idle share {:.1f}%\n",
                               found.name, 1e3 * found.simulated.total, 100 * found.simulated.idle_share);
  for (size_t part = 0; part < times_->of_part.size(); ++part) {
    const PassTimes& one = times_->of_part[part];
    text += formatted("  part {} on stage {}: forward {:.2f} ms, backward of inputs {:.2f} ms, of weights {:.2f} ms\n", part,
                      stage_of_[part], 1e3 * one.forward, 1e3 * one.input, 1e3 * one.weight);
  }
  return text + to_csv(found.schedule);
}

Schedule ChosenSchedule::made(int64_t micro_batches) const {
  if (is_auto_) return searched(micro_batches).schedule;
  if (from_file_) return *from_file_;
  if (!make_) return built_in(name_, {stages_, micro_batches, chunks_});
  Schedule schedule{{}, loop(stages_, 1)};
  for (uint32_t stage = 0; stage < stages_; ++stage) {
    const std::unique_ptr<pipe::PipeSchedule> one = make_(micro_batches, stages_, stage);
    if (!one)
      throw Error(ErrorCode::kConfig, formatted("it returned null for stage {} and {} micro-batches", stage, micro_batches),
                  "return a schedule for each stage, or set gradient_accumulation_steps to a number that it has one for");
    if (one->stage() != stage || one->num_stages() != stages_ || one->num_micro_batches() != micro_batches)
      throw Error(ErrorCode::kConfig,
                  formatted("it returned the schedule of stage {} of {} with {} micro-batches, and was asked for stage {} of {} "
                            "with {}",
                            one->stage(), one->num_stages(), one->num_micro_batches(), stage, stages_, micro_batches),
                  "pass the arguments to the constructor of PipeSchedule, in their order");
    schedule.actions.push_back(actions_of(*one));
  }
  return schedule;
}

const ChosenSchedule::CheckedSchedule& ChosenSchedule::keep(int64_t micro_batches, Schedule schedule) {
  const uint64_t hash = std::hash<std::string>()(to_csv(schedule));
  return checked_.emplace(micro_batches, CheckedSchedule{std::move(schedule), hash}).first->second;
}

const ChosenSchedule::CheckedSchedule& ChosenSchedule::checked(int64_t micro_batches) {
  if (const auto known = checked_.find(micro_batches); known != checked_.end()) return known->second;
  try {
    Schedule schedule = made(micro_batches);
    if (schedule.ranks() != stages_)
      throw Error(ErrorCode::kConfig, formatted("it has {} rows, and the pipeline has {} stages", schedule.ranks(), stages_),
                  "write a row for each stage");
    validate(schedule);
    if (schedule.micro_batches() != micro_batches)
      throw Error(ErrorCode::kConfig,
                  formatted("it is of {} micro-batches, and a step has {}", schedule.micro_batches(), micro_batches),
                  "set gradient_accumulation_steps to that number, or write one for this number");
    if (!has_backwards(schedule))
      throw Error(ErrorCode::kConfig, "it has only forwards", "also write the backwards, to train by it");
    if (!stage_of_.empty() && schedule.rank_of != stage_of_)
      throw Error(ErrorCode::kConfig, formatted("it divides the layers in another way at {} micro-batches", micro_batches),
                  "have the same parts on each stage, whatever the number of micro-batches");
    return keep(micro_batches, std::move(schedule));
  } catch (const Error& error) {
    throw Error(ErrorCode::kConfig, formatted("{}: {}", source_, error.message()), error.next_step());
  }
}

// A file has one size, and a built-in schedule can fail only because of its size; both were checked
// at the start. If the program returns an invalid schedule, it does exist, so its error is thrown.
bool ChosenSchedule::exists(int64_t micro_batches) {
  if (from_file_) return from_file_->micro_batches() == micro_batches;
  if (make_) {
    if (!make_(micro_batches, stages_, 0)) return false;
    checked(micro_batches);
    return true;
  }
  try {
    checked(micro_batches);
    return true;
  } catch (const Error&) {
    return false;
  }
}

const Schedule& ChosenSchedule::of(int64_t micro_batches) { return checked(micro_batches).schedule; }
uint64_t ChosenSchedule::hash_of(int64_t micro_batches) { return checked(micro_batches).hash; }

}  // namespace gannet::pipeline
