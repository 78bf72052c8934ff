// The program gannet-kit, in libexec/gannet: the commands of `gannet plugins` that need no LibTorch
// (kit_commands.h).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "cli/app.h"
#include "cli/help.h"
#include "cli/kit_commands.h"
#include "kit/bench.h"
#include "kit/growth.h"
#include "kit/new_plugin.h"
#include "kit/run.h"
#include "kit/trust.h"

// `gannet-kit new ...` means `gannet-kit plugins new ...`; only `gannet` itself requires the word
// `plugins`.
int main(int argc, char** argv) {
  gannet::kit::count_every_block(argv);
  std::vector<char*> words(argv, argv + argc);
  char command[] = "plugins";
  const auto& names = gannet::cli::kKitCommands;
  if (argc > 1 && std::find(names.begin(), names.end(), argv[1]) != names.end()) words.insert(words.begin() + 1, command);
  CLI::App app("train LibTorch models from a ds_config.json", "gannet");
  auto* plugins = app.add_subcommand("plugins", "List, describe, write and check plugins");
  plugins->require_subcommand(1);
  gannet::cli::add_kit_commands(*plugins, {.check = gannet::kit::check_file,
                                           .bench = gannet::kit::bench_files,
                                           .new_plugin = gannet::kit::new_plugin,
                                           .trust = gannet::kit::trust_files});
  gannet::cli::use_our_help(app);
  return gannet::cli::parse_and_run(app, static_cast<int>(words.size()), words.data());
}
