#include <gannet/error.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/format.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/tree.h"
#include "control/environment.h"
#include "launch/devices.h"
#include "launch/env_file.h"
#include "launch/head.h"
#include "launch/launch.h"
#include "launch/placement.h"

namespace gannet::cli {
namespace {

struct RunArguments {
  uint32_t num_gpus = 0, num_procs = 0;
  launch::PlacementOptions placement;
  launch::LaunchOptions options;
  std::vector<std::string> exports;
  uint32_t ssh_port = 0;
  bool is_dry = false;
};

constexpr const char* kRunFooter =
    R"(Everything after PROGRAM is passed to it. Each rank finds RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_SIZE,
LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment, OMP_NUM_THREADS unless it is set, and GANNET_RESTART:
the number of restarts so far.

When a rank fails, the others are ended within seconds, and the cause is reported with the rank's last lines. SIGTERM,
SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 are forwarded to all ranks; a program that uses gannet::StopSignals saves on SIGTERM
and SIGUSR1 and ends with exit code 85. When the reader of the output ends (`gannet run ... | head`), the ranks get
SIGTERM. Nothing that a rank started outlives gannet run, daemons included.

Examples:
  gannet run --num_gpus 2 ./train --deepspeed_config ds_config.json
  gannet run --num_procs 4 --bind_cores_to_rank ./train --epochs 3
  gannet run --num_procs 2 --max-restarts 3 ./train --resume
  srun --nodes 2 --ntasks-per-node 1 gannet run --num_procs 4 ./train      # one gannet run a machine
  gannet run --hostfile hosts ./train --epochs 3                           # ssh to the hosts of a file
  gannet run --num_procs 4 --num_nodes 2 --node_rank 1 --master_addr node0 ./train      # by hand, on node 1

Exit code: that of the first rank that failed, 128 + N when signal N killed it; 85 when the ranks were asked to stop and
saved; 127 when PROGRAM is not found, 126 when it cannot be executed.)";

// Options of DeepSpeed's launcher that Gannet lacks or does not need, with what to do instead.
struct ForeignOption {
  std::vector<std::string> names;
  const char* next_step;
};

constexpr const char* kLeaveItOut = "PROGRAM is always executed directly, and finds its rank in LOCAL_RANK: leave the option out";

const std::vector<ForeignOption>& foreign_options() {
  static const std::vector<ForeignOption> options = {
      {{"--launcher_args"}, "these are for srun or mpirun, which start gannet run themselves: docs/cluster.md"},
      {{"--no_ssh_check", "--force_multi"}, "leave it out: every host is asked before any rank starts, however many there are"},
      {{"--venv_script"}, "source it here: the hosts get the environment of this shell"},
      {{"--elastic_training", "--min_elastic_nodes", "--max_elastic_nodes"},
       "--max-restarts N restarts all ranks after a failure; their number does not change"},
      {{"--module"}, "name the interpreter: gannet run --num_procs N python -m MODULE"},
      {{"--no_python", "--no_local_rank"}, kLeaveItOut},
      {{"--bind_core_list"}, "taskset -c LIST gannet run --bind_cores_to_rank ... shares these cores among the ranks"},
      {{"--enable_each_rank_log"}, "each line begins with its rank: grep '^\\[1\\]' finds those of rank 1"},
      {{"--save_pid"}, "the shell provides it: gannet run ... & echo $!"},
      {{"--autotuning"}, "`gannet estimate` computes what fits into memory"},
      {{"--log_level", "-q", "--quiet"}, "gannet run itself prints little: leave the option out"},
  };
  return options;
}

void refuse_foreign(const std::string& name) {
  for (const ForeignOption& foreign : foreign_options())
    if (std::find(foreign.names.begin(), foreign.names.end(), name) != foreign.names.end())
      throw Error(ErrorCode::kUnsupported,
                  formatted("gannet run: {} is an option of DeepSpeed's launcher that is not implemented", name),
                  foreign.next_step);
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const OptionInfo& option : describe(command, "gannet run").options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

// The variables of --env and, with a hostfile, those of .deepspeed_env.
launch::Exports exports_of(const RunArguments& arguments, bool has_hostfile, std::vector<std::string>& notes) {
  const auto variables = control::variables_of_this_process();
  const auto value = [&](const char* name) {
    const std::string* const found = control::find(variables, name);
    return found ? *found : std::string();
  };
  launch::Exports exports;
  if (has_hostfile) exports = launch::read_env_files(value("HOME"), value("DS_ENV_FILE"), notes);
  for (const std::string& option : arguments.exports)
    exports.push_back(launch::export_of(option, launch::inherited_environment({})));
  return exports;
}

// `--hostfile "$UNSET"` must not count as no hostfile.
[[noreturn]] void refuse_empty_value(const std::string& name) {
  throw Error(ErrorCode::kArgument, formatted("gannet run: {} has an empty value", name),
              "is the variable set that the shell should have put there? Else leave the option out");
}

void refuse_empty(const CLI::App& command) {
  for (const char* name : {"--hostfile", "--include", "--exclude", "--master_addr", "--launcher"}) {
    const CLI::Option* option = command.get_option(name);
    if (option->count() > 0 && option->as<std::string>().empty()) refuse_empty_value(name);
  }
}

launch::SshOptions ssh_options(const RunArguments& arguments) {
  launch::SshOptions ssh{
      .command = {}, .port = arguments.ssh_port, .gannet = std::filesystem::read_symlink("/proc/self/exe").string()};
  if (const char* command = std::getenv("GANNET_SSH")) ssh.command = split(command, ' ');
  return ssh;
}

void say_node(const launch::LaunchOptions& options) {
  const launch::Node& node = options.node;
  std::cerr << formatted("[gannet run] node {} of {} ({}): rank{}, which meet at {}:{}\n", node.index, node.count, node.told_by,
                         options.procs == 1
                             ? formatted(" {}", options.first_rank())
                             : formatted("s {} to {}", options.first_rank(), options.first_rank() + options.procs - 1),
                         node.master_addr, node.master_port);
}

int start(RunArguments& arguments) {
  const auto& command = arguments.placement.command;
  launch::Placement placement = launch::place(arguments.placement, control::variables_of_this_process(),
                                              launch::count_devices(launch::inherited_environment({})));
  const bool has_hostfile = !placement.hosts.empty() || !placement.node.procs_of_nodes.empty();
  const launch::Exports exports = exports_of(arguments, has_hostfile, placement.notes);
  if (!exports.empty()) arguments.options.environment = launch::with_exports(launch::inherited_environment({}), exports);
  arguments.options.command = command;
  arguments.options.procs = placement.procs;
  arguments.options.slots = placement.slots;
  arguments.options.node = placement.node;
  if (!placement.hosts.empty()) arguments.options.node.master_port = arguments.placement.node.master_port;
  for (const std::string& note : placement.notes) std::cerr << formatted("[gannet run] {}\n", note);
  if (arguments.is_dry) {
    std::cout << launch::text_of(placement, command) << std::flush;
    return 0;
  }
  if (placement.hosts.empty() && placement.node.count > 1) say_node(arguments.options);
  try {
    if (placement.hosts.empty()) return launch::run(arguments.options);
    return launch::run_on_hosts(
        {placement.hosts, arguments.options, arguments.placement.node.master_addr, ssh_options(arguments), exports});
  } catch (const launch::StartError& error) {
    std::cerr << "gannet: " << error.what() << '\n';
    return error.shell_code();
  }
}

int run(CLI::App& command, RunArguments& arguments) {
  refuse_empty(command);
  const auto rest = command.remaining();
  if (!rest.empty() && rest[0].size() > 1 && rest[0][0] == '-') {
    const std::string name = rest[0].substr(0, rest[0].find('='));
    refuse_foreign(name);
    throw Error(ErrorCode::kArgument,
                formatted("unknown option '{}' before PROGRAM{}", rest[0], did_you_mean(name, option_names(command))),
                "options of the program come after it; `gannet run --help` lists those of run");
  }
  if (arguments.num_gpus && arguments.num_procs && arguments.num_gpus != arguments.num_procs)
    throw Error(ErrorCode::kArgument,
                formatted("gannet run: --num_gpus {} and --num_procs {} differ", arguments.num_gpus, arguments.num_procs),
                "one process is started for each device: give one of the two");
  if (rest.empty())
    throw Error(ErrorCode::kArgument, "gannet run: no PROGRAM was named", "gannet run --num_procs N PROGRAM ARGS...");
  arguments.placement.command = rest;
  arguments.placement.hosts.procs = std::max(arguments.num_gpus, arguments.num_procs);
  return start(arguments);
}

}  // namespace

void drop_separator(const CLI::App& app, std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] != "run") return;
  const CLI::App* command = app.get_subcommand("run");
  for (size_t i = 1; i < arguments.size() && arguments[i].rfind('-', 0) == 0; ++i) {
    if (arguments[i] == "--") {
      arguments.erase(arguments.begin() + static_cast<long>(i));
      return;
    }
    // The parser would treat the next word, which may be PROGRAM, as the value.
    if (arguments[i].size() > 3 && arguments[i].back() == '=')
      refuse_empty_value(arguments[i].substr(0, arguments[i].size() - 1));
    const CLI::Option* option = command->get_option_no_throw(arguments[i]);
    if (option && option->get_items_expected_max() > 0) ++i;  // skip its value; a value after "=" is part of the same argument
  }
}

void add_run(CLI::App& app) {
  auto arguments = std::make_shared<RunArguments>();
  auto* command = app.add_subcommand("run", "start a program as several ranks, on this machine or as one node of several");
  command->add_option("--num_gpus,--num_accelerators", arguments->num_gpus, "ranks to start, one for each device")
      ->check(CLI::Range(1, 4096));
  command->add_option("--num_procs,--nproc_per_node,--nproc-per-node", arguments->num_procs, "ranks to start on this machine")
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--num_nodes,--num-nodes,--nnodes,--nnode", arguments->placement.hosts.nodes,
                   "the first N hosts of the hostfile; or machines that each have a gannet run of their own (default: 1, or what "
                   "srun, mpirun or Kubeflow say)")
      ->check(CLI::Range(1, 65536));
  command->add_option(
      "-H,--hostfile", arguments->placement.hosts.hostfile,
      "start the ranks by ssh on these hosts: a line 'NAME slots=N' for each (default: /job/hostfile, if it exists)");
  command->add_option("-i,--include", arguments->placement.hosts.include,
                      "hosts and slots that take part: NAME@NAME:SLOT,SLOT; without a hostfile localhost:SLOT,SLOT");
  command->add_option("-e,--exclude", arguments->placement.hosts.exclude, "hosts and slots that do not");
  command->add_option("--node_rank,--node-rank", arguments->placement.node.rank, "the number of this machine, from 0")
      ->check(CLI::Range(0, 65535));
  command->add_option("--master_addr,--master-addr", arguments->placement.node.master_addr,
                      "the machine of node 0, where rank 0 runs");
  command
      ->add_option(
          "--master_port,--master-port", arguments->placement.node.master_port,
          "port of the rendezvous on rank 0 (default: a free one; without ssh on several machines one of the job, or 29500)")
      ->check(CLI::Range(1, 65535));
  command->add_flag("--no_ssh,--no-ssh", arguments->placement.no_ssh,
                    "gannet run is started on each machine by hand, with --node_rank");
  command->add_option("--ssh_port,--ssh-port", arguments->ssh_port, "port of sshd on the hosts")->check(CLI::Range(1, 65535));
  command->add_option("--launcher", arguments->placement.launcher, "ssh; for any other one the error has the line to type");
  command
      ->add_option("--env", arguments->exports,
                   "a variable for all ranks: NAME=VALUE, or NAME for the value here; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--dry-run,--dry_run", arguments->is_dry, "print which ranks would run where, and end");
  command->add_flag("--bind_cores_to_rank", arguments->options.bind_cores_to_rank, "bind each rank to its own cores");
  command
      ->add_option("--max-restarts,--max_restarts", arguments->options.max_restarts,
                   "restart all ranks after a failure, at most N times; not after exit code 2 (a user's mistake), 126 or 127 "
                   "(no program), nor when asked to stop; with a pause if they fail soon after their start (default: 0)")
      ->check(CLI::Range(0, 1'000'000));
  command
      ->add_option("--grace-seconds,--grace_seconds", arguments->options.grace_seconds,
                   "time from SIGTERM, SIGINT or SIGHUP until the ranks are killed: enough to write a checkpoint "
                   "(default: 30)")
      ->check(CLI::Range(0.0, 1e6));
  command->footer(kRunFooter);
  command->prefix_command();
  command->callback([command, arguments] {
    const int code = run(*command, *arguments);
    if (code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace gannet::cli
