#include "cli/kit_commands.h"

#include <memory>

namespace gannet::cli {

void add_kit_commands(CLI::App& plugins, const KitRunners& runners) {
  auto* check = plugins.add_subcommand("check", "Check that a plugin's file does what the contract says");
  auto options = std::make_shared<kit::CheckOptions>();
  check->add_option("file", options->file, "the plugin's file")->required()->type_name("FILE");
  check->add_option("--plugin", options->plugin, "only this one of the file's plugins, by name")->type_name("NAME");
  check->add_option("--check", options->checks, "only this check, by name; may be given several times")->type_name("NAME");
  check->add_option("--params", options->params, "params of its objects, as the config's, in JSON")->type_name("JSON");
  check->add_option("--exclusions", options->exclusions, "file of checks that it does not pass, a line each: NAME REASON")
      ->type_name("FILE");
  check->add_option("--reference", options->reference, "plugin file to compare an optimizer's results with")->type_name("FILE");
  check->add_option("--reference-params", options->reference_params, "params of the reference, in JSON")->type_name("JSON");
  check->add_option("--tolerance", options->tolerance, "difference to the reference, relative to the 2-norm (1e-6)")
      ->type_name("NUMBER")
      ->check(CLI::NonNegativeNumber);
  check->add_option("--timeout", options->limit_seconds, "time limit for each check, in seconds")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 3600));
  check->add_flag("--json", options->json, "print the report as JSON");
  check->callback([options, run = runners.check] {
    if (run)
      if (const int code = run(*options); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace gannet::cli
