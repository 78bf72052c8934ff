// Rows of the key table: monitors, profilers, timers.
#include "config/row.h"

namespace gannet::config {
namespace {

using enum Type;
using enum Status;

template <auto field>
constexpr Member profiler = member<&Settings::flops_profiler, field>;

constexpr const char* kOnline =
    "it is a network service with a Python client; \"tensorboard\", \"csv_monitor\" and \"gannet\": "
    "{\"metrics\": ...} write files "
    "here";
constexpr const char* kComms = "the log of collectives";
constexpr const char* kTimer = "Gannet has no such timer";

constexpr Key kRows[] = {
    {"tensorboard", kSection, "{}", kActive, "", "event files for TensorBoard, by rank 0 (docs/metrics.md)"},
    row("tensorboard/enabled", member<&Settings::tensorboard, &MonitorFolder::enabled>, kBool, "false", "",
        "switches the section on"),
    row("tensorboard/output_path", member<&Settings::tensorboard, &MonitorFolder::output_path>, kString, "\"\"", "", "folder"),
    row("tensorboard/job_name", member<&Settings::tensorboard, &MonitorFolder::job_name>, kString, "\"DeepSpeedJobName\"", "",
        "sub-folder"),
    {"wandb", kSection, "{}", kUnsupported, "", "send metrics to Weights & Biases"},
    {"wandb/enabled", kBool, "false", kUnsupported, "", "switches the section on", kOnline},
    {"wandb/group", kString, "null", kUnsupported, "", "group of runs", kOnline},
    {"wandb/team", kString, "null", kUnsupported, "", "team", kOnline},
    {"wandb/project", kString, "\"deepspeed\"", kUnsupported, "", "project", kOnline},
    {"csv_monitor", kSection, "{}", kActive, "", "a CSV file for each number, by rank 0 (docs/metrics.md)"},
    row("csv_monitor/enabled", member<&Settings::csv_monitor, &MonitorFolder::enabled>, kBool, "false", "",
        "switches the section on"),
    row("csv_monitor/output_path", member<&Settings::csv_monitor, &MonitorFolder::output_path>, kString, "\"\"", "", "folder"),
    row("csv_monitor/job_name", member<&Settings::csv_monitor, &MonitorFolder::job_name>, kString, "\"DeepSpeedJobName\"", "",
        "sub-folder"),
    {"comet", kSection, "{}", kUnsupported, "", "send metrics to Comet"},
    {"comet/enabled", kBool, "false", kUnsupported, "", "switches the section on", kOnline},
    {"comet/samples_log_interval", kInt, "100", kUnsupported, ">=1", "samples between two values", kOnline},
    {"comet/project", kString, "null", kUnsupported, "", "project", kOnline},
    {"comet/workspace", kString, "null", kUnsupported, "", "workspace", kOnline},
    {"comet/api_key", kString, "null", kUnsupported, "", "key of the account", kOnline},
    {"comet/experiment_name", kString, "null", kUnsupported, "", "name of the run", kOnline},
    {"comet/experiment_key", kString, "null", kUnsupported, "", "identity of the run", kOnline},
    {"comet/online", kBool, "null", kUnsupported, "", "send at once", kOnline},
    {"comet/mode", kString, "null", kUnsupported, "", "get, create, get_or_create", kOnline},
    {"comms_logger", kSection, "{}", kUnsupported, "", "log every collective"},
    {"comms_logger/enabled", kBool, "false", kUnsupported, "", "switches the section on", kComms},
    {"comms_logger/prof_all", kBool, "true", kUnsupported, "", "every operation", kComms},
    {"comms_logger/prof_ops", kStrings, "[]", kUnsupported, "", "these operations", kComms},
    {"comms_logger/verbose", kBool, "false", kUnsupported, "", "each call", kComms},
    {"comms_logger/debug", kBool, "false", kUnsupported, "", "with its caller", kComms},
    {"flops_profiler", kSection, "{}", kActive, "", "count the operations of one step"},
    row("flops_profiler/enabled", profiler<&FlopsProfiler::enabled>, kBool, "false", "", "switches the section on"),
    row("flops_profiler/recompute_fwd_factor", profiler<&FlopsProfiler::recompute_fwd_factor>, kNumber, "0.0", ">=0",
        "fraction of forward that backward recomputes invisibly to the operators"),
    row("flops_profiler/profile_step", profiler<&FlopsProfiler::profile_step>, kInt, "1", ">=0",
        "number of steps before the profiled one"),
    row("flops_profiler/module_depth", profiler<&FlopsProfiler::module_depth>, kInt, "-1", ">=-1",
        "depth of the report; -1: all"),
    row("flops_profiler/top_modules", profiler<&FlopsProfiler::top_modules>, kInt, "1", ">=1", "modules per depth in the report"),
    row("flops_profiler/detailed", profiler<&FlopsProfiler::detailed>, kBool, "true", "", "the whole report"),
    row("flops_profiler/output_file", profiler<&FlopsProfiler::output_file>, kString, "null", "",
        "file of the report; null: the log"),
    {"timers", kSection, "{}", kNoEffect, "", "DeepSpeed's timers"},
    {"timers/throughput", kSection, "{}", kNoEffect, "", "timer of the samples per second"},
    {"timers/throughput/enabled", kBool, "true", kNoEffect, "", "switches the section on", kTimer},
    {"timers/throughput/synchronized", kBool, "true", kNoEffect, "", "wait for the device before the clock is read", kTimer},
};

}  // namespace

std::span<const Key> monitoring_keys() { return kRows; }

}  // namespace gannet::config
