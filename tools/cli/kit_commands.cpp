#include "cli/kit_commands.h"

#include <memory>
#include <string>
#include <vector>

#include "kit/new_plugin.h"

namespace gannet::cli {
namespace {

void add_check(CLI::App& plugins, int (*run)(const kit::CheckOptions&)) {
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
  check
      ->add_option("--accelerator", options->accelerator,
                   "plugin file of the device that a Comm works on, if the device is made of host memory")
      ->type_name("FILE");
  check->add_option("--timeout", options->limit_seconds, "time limit for each check, in seconds")
      ->type_name("SECONDS")
      ->check(CLI::Range(1, 3600));
  check
      ->add_option("--launched", options->launched,
                   "this process is a Comm's rank that mpirun or srun started; FILE: for the ranks' store, as /dev/shm/NAME")
      ->type_name("FILE");
  check->add_flag("--json", options->json, "print the report as JSON");
  check->callback([options, run] {
    if (run)
      if (const int code = run(*options); code != 0) throw CLI::RuntimeError(code);
  });
}

void add_bench(CLI::App& plugins, int (*run)(const kit::BenchOptions&)) {
  auto* command = plugins.add_subcommand("bench", "Time an optimizer's step beside the machine's bandwidth and other optimizers");
  auto options = std::make_shared<kit::BenchOptions>();
  command->add_option("files", options->files, "the plugins' files")->required()->type_name("FILE");
  command->add_option("--plugin", options->plugins, "only this one of the files' optimizers, by name; may be given several times")
      ->type_name("NAME");
  command->add_option("--params", options->params, "params, in JSON; each optimizer takes those that it declares")
      ->type_name("JSON");
  command->add_option("--dtype", options->dtype, "type of the gradients and of the copy; masters are fp32 (fp32)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "fp64"}));
  command->add_option("--numel", options->numel, "number of parameters (16777216)")
      ->type_name("NUMBER")
      ->check(CLI::Range(uint64_t{16384}, uint64_t{1} << 40));
  command->add_option("--rounds", options->rounds, "rounds, of which the median counts (9)")
      ->type_name("NUMBER")
      ->check(CLI::Range(1, 1000));
  command->add_option("--bytes", options->bytes, "bytes that a step moves for a parameter, where you know them better")
      ->type_name("NUMBER")
      ->check(CLI::NonNegativeNumber);
  command->callback([options, run] {
    if (run)
      if (const int code = run(*options); code != 0) throw CLI::RuntimeError(code);
  });
}

void add_new(CLI::App& plugins, int (*run)(const kit::NewOptions&)) {
  auto* command = plugins.add_subcommand("new", "Write the project of a plugin of your own");
  auto options = std::make_shared<kit::NewOptions>();
  command->add_option("kind", options->kind, "what the plugin is")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kit::kKinds), std::end(kit::kKinds))));
  command->add_option("name", options->name, "its name, as the config will have it: letters, digits, underscores")->required();
  command->add_option("--language", options->language, "language of the source (c++)")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kit::kLanguages), std::end(kit::kLanguages))));
  command->add_option("--folder", options->folder, "where to write it; a new or an empty folder (NAME)")->type_name("FOLDER");
  command->callback([options, run] {
    if (run)
      if (const int code = run(*options); code != 0) throw CLI::RuntimeError(code);
  });
}

void add_trust(CLI::App& plugins, int (*run)(const kit::TrustOptions&)) {
  auto* command = plugins.add_subcommand("trust", "List plugin files that may be opened, by their SHA-256, or add to that list");
  auto options = std::make_shared<kit::TrustOptions>();
  command->add_option("files", options->files, "plugin files, or folders of them, to trust as they are now")->type_name("FILE");
  command->add_option("--remove", options->remove, "take a file, or a hash, out of the list")->type_name("FILE");
  command->add_flag("--list", options->list, "print the list, and which of its files have changed");
  command->add_option("--trusted", options->trusted, "the list to use (~/.config/gannet/trusted_plugins)")->type_name("FILE");
  command->callback([options, run] {
    if (run)
      if (const int code = run(*options); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace

void add_kit_commands(CLI::App& plugins, const KitRunners& runners) {
  add_check(plugins, runners.check);
  add_bench(plugins, runners.bench);
  add_new(plugins, runners.new_plugin);
  add_trust(plugins, runners.trust);
}

}  // namespace gannet::cli
