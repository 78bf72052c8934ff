#include "base/exit.h"
#include "cli/app.h"
#include "cli/commands.h"
#include "cli/help.h"

namespace {

constexpr const char* kMainFooter =
    R"(Examples:
  gannet doctor                                                 # is this machine ready?
  gannet config check ds_config.json                            # is the config right?
  gannet run --num_procs 2 ./train --deepspeed_config ds_config.json
  gannet checkpoint list run1

Exit code: 0 on success; 2 for a user's mistake, 3 for an environment's fault, 70 for a defect of Gannet, 71 for a fault
of a plugin; a command with other codes lists them in its help.)";

}  // namespace

int main(int argc, char** argv) {
  gannet::skip_destructors_of_libraries();
  CLI::App app("train LibTorch models from a ds_config.json", "gannet");
  app.set_version_flag("--version", GANNET_VERSION, "print the version and exit");
  app.require_subcommand(1);
  gannet::cli::add_run(app);
  gannet::cli::add_train(app);
  gannet::cli::add_config(app);
  gannet::cli::add_schedule(app);
  gannet::cli::add_estimate(app);
  gannet::cli::add_model(app);
  gannet::cli::add_pipeline(app);
  gannet::cli::add_plugins(app);
  gannet::cli::add_checkpoint(app);
  gannet::cli::add_report(app);
  gannet::cli::add_bench(app);
  gannet::cli::add_doctor(app);
  gannet::cli::add_shell(app);
  app.footer(kMainFooter);  // set last, because a command copies the current footer when it is created
  gannet::cli::use_our_help(app);
  return gannet::cli::parse_and_run(app, argc, argv);
}
