#include <gannet/error.h>

#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "launch/launch.h"

namespace gannet::cli {
namespace {

struct Arguments {
  uint32_t num_gpus = 0, num_procs = 0;
  launch::Options options;
};

constexpr const char* kFooter =
    R"(gannet run --num_gpus N | --num_procs N [--master_port P] [--bind_cores_to_rank] PROGRAM ARGS...

Everything after PROGRAM is the program's own. Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_SIZE,
LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment, and OMP_NUM_THREADS unless it is set.

Examples:
  gannet run --num_gpus 2 ./train --deepspeed_config ds_config.json
  gannet run --num_procs 4 --bind_cores_to_rank ./train --epochs 3
  gannet run --num_procs 2 --master_port 29501 python3 script.py

Exit code: that of the first rank that failed, 128 + N when signal N killed it; 127 when PROGRAM is not found, 126 when it
cannot be executed.)";

int run(CLI::App& command, Arguments& arguments) {
  const auto rest = command.remaining();
  if (!rest.empty() && rest[0].size() > 1 && rest[0][0] == '-')
    throw Error(ErrorCode::kArgument, "gannet run: unknown option '" + rest[0] + "' before PROGRAM",
                "options of the program come after it; `gannet run --help` lists those of run");
  if (arguments.num_gpus && arguments.num_procs && arguments.num_gpus != arguments.num_procs)
    throw Error(ErrorCode::kArgument,
                "gannet run: --num_gpus " + std::to_string(arguments.num_gpus) + " and --num_procs " +
                    std::to_string(arguments.num_procs) + " differ",
                "one process is started for each device: give one of them");
  arguments.options.procs = std::max(arguments.num_gpus, arguments.num_procs);
  if (arguments.options.procs == 0)
    throw Error(ErrorCode::kArgument, "gannet run: how many processes?", "give --num_gpus N or --num_procs N");
  if (rest.empty())
    throw Error(ErrorCode::kArgument, "gannet run: no PROGRAM was named", "gannet run --num_procs N PROGRAM ARGS...");
  arguments.options.command = rest;
  try {
    return launch::run(arguments.options);
  } catch (const launch::StartError& error) {
    std::cerr << "gannet: " << error.what() << '\n';
    return error.shell_code();
  }
}

}  // namespace

void add_run(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  auto* command = app.add_subcommand("run", "start a program as several ranks on this machine");
  command->add_option("--num_gpus,--num_accelerators", arguments->num_gpus, "ranks to start, one for each device")
      ->check(CLI::Range(1, 4096));
  command->add_option("--num_procs", arguments->num_procs, "ranks to start")->check(CLI::Range(1, 4096));
  command
      ->add_option("--master_port", arguments->options.master_port,
                   "port that rank 0 serves the rendezvous at (default: a free one)")
      ->check(CLI::Range(1, 65535));
  command->add_flag("--bind_cores_to_rank", arguments->options.bind_cores_to_rank, "give each rank cores of its own");
  command->footer(kFooter);
  command->prefix_command();
  command->callback([command, arguments] {
    const int code = run(*command, *arguments);
    if (code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace gannet::cli
