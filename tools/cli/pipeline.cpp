// gannet pipeline show: simulates a step of a pipeline schedule; prints it as text, SVG or CSV.
#include <gannet/error.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "cli/commands.h"
#include "pipeline/built_in.h"
#include "pipeline/draw.h"
#include "pipeline/search.h"
#include "pipeline/simulate.h"
#include "pipeline/validate.h"

namespace gannet::cli {
namespace {

struct ShowArguments {
  std::string schedule, times = "1,1,1";
  std::optional<uint32_t> stages, chunks;
  std::optional<int64_t> micro_batches;
  double link = 0;
  std::optional<double> memory;
  bool as_csv = false, as_svg = false;
};

pipeline::PassTimes times_of(const std::string& text) {
  std::array<double, 3> all{};
  const char* next = text.data();
  const char* end = text.data() + text.size();
  for (size_t i = 0; i < all.size(); ++i) {
    const auto [rest, code] = std::from_chars(next, end, all[i]);
    const bool is_right =
        code == std::errc() && all[i] >= 0 && all[i] <= 1e9 && (i + 1 < all.size() ? rest != end && *rest == ',' : rest == end);
    if (!is_right)
      throw Error(ErrorCode::kArgument, formatted("--times is '{}', and must be three numbers from 0 to 1e9", printable(text)),
                  "write the times of F, of the backward of the inputs and of that of the weights, as 1,1.2,0.8");
    next = rest + 1;
  }
  return {all[0], all[1], all[2]};
}

pipeline::Schedule read_schedule(const ShowArguments& arguments) {
  const std::string& path = arguments.schedule;
  pipeline::Schedule schedule;
  try {
    schedule = pipeline::read_csv(path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    throw Error(ErrorCode::kNotFound,
                formatted("--schedule: '{}' is neither a schedule nor a CSV file that can be read{}", printable(path),
                          did_you_mean(path, pipeline::built_in_names())),
                formatted("name a file, auto, or one of {}", join(pipeline::built_in_names(), ", ")));
  }
  try {
    validate(schedule);
  } catch (const Error& error) {
    throw Error(error.code(), formatted("{}: {}", printable(path), error.message()), error.next_step());
  }
  const auto compare = [&](const char* option, std::optional<int64_t> given, int64_t found) {
    if (given && *given != found)
      throw Error(ErrorCode::kArgument, formatted("{} is {}, and {} has {}", option, *given, path, found),
                  "leave the option out");
  };
  compare("--stages", arguments.stages, static_cast<int64_t>(schedule.ranks()));
  compare("--micro-batches", arguments.micro_batches, schedule.micro_batches());
  compare("--chunks", arguments.chunks, static_cast<int64_t>(schedule.parts() / schedule.ranks()));
  return schedule;
}

pipeline::Schedule schedule_of(const ShowArguments& arguments) {
  const std::vector<std::string>& names = pipeline::built_in_names();
  if (std::find(names.begin(), names.end(), arguments.schedule) == names.end()) return read_schedule(arguments);
  const uint32_t stages = arguments.schedule == "data-parallel" ? arguments.stages.value_or(1) : arguments.stages.value_or(0);
  if (stages == 0 || !arguments.micro_batches)
    throw Error(ErrorCode::kArgument,
                formatted("schedule {} needs {}", arguments.schedule, stages == 0 ? "--stages" : "--micro-batches"),
                "give the number of stages and of micro-batches, as --stages 4 --micro-batches 8");
  return pipeline::built_in(arguments.schedule, {stages, *arguments.micro_batches, arguments.chunks});
}

// A picture of more passes is unreadable, and simulating them takes gigabytes.
void check_size(const ShowArguments& arguments) {
  constexpr int64_t kMost = 1 << 20;
  const int64_t parts = int64_t{arguments.stages.value_or(1)} * arguments.chunks.value_or(1);
  if (const int64_t micro_batches = arguments.micro_batches.value_or(1); parts * micro_batches > kMost)
    throw Error(ErrorCode::kArgument,
                formatted("{} micro-batches through {} parts of a model are too many: at most {} forward passes are simulated",
                          micro_batches, parts, kMost),
                "give fewer micro-batches: the idle share changes little once there are several times as many as stages");
}

// The schedule and, if a search found it, a line with its name.
std::pair<pipeline::Schedule, std::string> chosen(const ShowArguments& arguments, const pipeline::PassTimes& times) {
  if (arguments.schedule != "auto") {
    if (arguments.memory)
      throw Error(ErrorCode::kArgument,
                  formatted("--memory is for the schedule auto, and the schedule is {}", printable(arguments.schedule)),
                  "leave it out, or search with --schedule auto");
    return {schedule_of(arguments), ""};
  }
  if (!arguments.stages || !arguments.micro_batches || arguments.chunks)
    throw Error(ErrorCode::kArgument, "schedule auto needs --stages and --micro-batches, and takes no --chunks",
                "give the number of stages and of micro-batches, as --stages 4 --micro-batches 8");
  pipeline::FoundSchedule found =
      pipeline::search({*arguments.stages, *arguments.micro_batches, times, arguments.link, arguments.memory});
  return {std::move(found.schedule), formatted("schedule: {}\n", found.name)};
}

void show_step(const ShowArguments& arguments) {
  check_size(arguments);
  const pipeline::PassTimes times = times_of(arguments.times);
  const auto [schedule, origin] = chosen(arguments, times);
  const pipeline::SimulatedStep step = simulate(schedule, even_times(schedule, times, arguments.link));
  if (arguments.as_csv)
    std::cout << to_csv(schedule);
  else if (arguments.as_svg)
    std::cout << draw_svg(schedule, step);
  else
    std::cout << draw_text(schedule, step) << '\n' << origin << summary_text(step);
}

}  // namespace

void add_pipeline(CLI::App& app) {
  auto* group = app.add_subcommand("pipeline", "Show how pipeline schedules order a step.");
  group->require_subcommand(1);
  auto arguments = std::make_shared<ShowArguments>();
  CLI::App* command = group->add_subcommand(
      "show", "Draw a simulated step of a pipeline schedule, with its length, idle time and live activations on each rank.");
  command
      ->add_option("--schedule", arguments->schedule,
                   formatted("{}, auto (the shortest for the given times), or a CSV file with a row for each rank",
                             join(pipeline::built_in_names(), ", ")))
      ->type_name("FILE")
      ->required();
  command->add_option("--stages", arguments->stages, "ranks along the pipeline")->check(CLI::Range(1, 1 << 16));
  command->add_option("--micro-batches", arguments->micro_batches, "micro-batches of a step")->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--chunks", arguments->chunks,
                   "parts of the model on each rank, for interleaved and interleaved-zb (default: 2)")
      ->check(CLI::Range(1, 1 << 10));
  command
      ->add_option("--times", arguments->times,
                   "times of a rank's forward, backward of inputs and backward of weights, over all its parts; a whole backward "
                   "takes both")
      ->type_name("F,B,W")
      ->capture_default_str();
  command->add_option("--link", arguments->link, "time of a message from one rank to another")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  command
      ->add_option("--memory", arguments->memory,
                   "the most activations that a rank keeps, for auto; a micro-batch through all its parts counts 1")
      ->check(CLI::Range(0.0, 1e9));
  auto* csv =
      command->add_flag("--csv", arguments->as_csv, "print the actions as CSV, a row for each rank, as PyTorch reads them");
  command->add_flag("--svg", arguments->as_svg, "print the picture as SVG")->excludes(csv);
  command->callback([arguments] { show_step(*arguments); });
}

}  // namespace gannet::cli
