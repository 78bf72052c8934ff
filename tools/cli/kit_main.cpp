// The program gannet-kit, in libexec/gannet: the commands of `gannet plugins` that need no LibTorch (kit_commands.h).
#include <CLI/CLI.hpp>

#include "cli/app.h"
#include "cli/help.h"
#include "cli/kit_commands.h"
#include "kit/growth.h"
#include "kit/run.h"

int main(int argc, char** argv) {
  gannet::kit::count_every_block(argv);
  CLI::App app("train LibTorch models from a ds_config.json", "gannet");
  auto* plugins = app.add_subcommand("plugins", "List, describe and check plugins");
  plugins->require_subcommand(1);
  gannet::cli::add_kit_commands(*plugins, {.check = gannet::kit::check_file});
  gannet::cli::use_our_help(app);
  return gannet::cli::parse_and_run(app, argc, argv);
}
