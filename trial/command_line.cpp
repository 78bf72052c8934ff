// The command line of a trial.
#include <gannet/error.h>
#include <gannet/initialize.h>
#include <gannet/stop.h>
#include <gannet/trial_settings.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <utility>

#include "common/nearest.h"
#include "hparam_sources.h"

namespace gannet {
namespace {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names = {"--deepspeed_config", "--set"};
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

}  // namespace

TrialSettings parse_trial_settings(int& argc, char** argv, const TrialOptions& options) {
  const ConfigArguments config = take_config_arguments(argc, argv);
  if (config.estimate)
    throw Error(ErrorCode::kUnsupported, "--estimate: a trial makes its own engines, and does not estimate them",
                "call gannet::estimate with its model and config (docs/estimate.md)");
  TrialSettings settings = options.settings;
  trials::HparamSources sources{
      .defaults = options.hparams, .deepspeed_config = config.config, .config_overrides = config.overrides};
  std::string max_length, validation_period, checkpoint_period;
  bool larger_is_better = !settings.smaller_is_better;

  const std::string program = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "trial";
  CLI::App app("trains one trial", program);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  app.add_option("--hparams", sources.file, "file of hyperparameters, JSON or YAML");
  app.add_option("--hparam", sources.assigned, "a hyperparameter, NAME=VALUE; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--max_length", max_length, "how long to train: 1000, \"1000 batches\" or \"3 epochs\"");
  app.add_option("--validation_period", validation_period, "between two validations (default: an epoch)");
  app.add_option("--checkpoint_period", checkpoint_period, "between two checkpoints (default: at each best validation)");
  app.add_option("--report_period", settings.report_period, "batches between two reports of the training metrics")
      ->capture_default_str();
  app.add_option("--epoch_length", settings.epoch_length, "batches that count as an epoch (default: those of the loader)");
  app.add_option("--output_dir", settings.output_dir, "folder of checkpoints and metrics; a trial that is there is resumed")
      ->capture_default_str();
  app.add_option("--metric", settings.metric, "of validation, by which the best checkpoint is chosen (default: loss)");
  app.add_flag("--larger_is_better", larger_is_better, "the largest value of that metric is the best");
  app.add_option("--seed", settings.seed, "of the random numbers")->capture_default_str();
  app.add_option("--keep_checkpoints", settings.keep_checkpoints, "newest checkpoints to keep, beside the best (default: all)");
  app.add_flag("--allow_changed_hparams", settings.allow_changed_hparams, "resume although hyperparameters changed");
  app.footer(
      "  --deepspeed_config FILE   the hyperparameter deepspeed_config\n"
      "  --set PATH=VALUE          a value of overwrite_deepspeed_args: --set optimizer.params.lr=3e-4; VALUE may be JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    if (!options.hparams.empty()) std::cout << "hyperparameters: " << Value(options.hparams).to_json() << '\n';
    std::cout << std::flush;
    std::exit(0);
  } catch (const CLI::ExtrasError&) {
    const auto rest = app.remaining();
    const std::string word = rest.empty() ? "" : rest.front();
    throw Error(ErrorCode::kArgument,
                "unknown argument '" + word + "'" + common::did_you_mean(word.substr(0, word.find('=')), option_names(app)),
                "--help lists all arguments; a hyperparameter is given as --hparam NAME=VALUE");
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::kArgument, error.what(), "--help lists all arguments");
  }
  if (!max_length.empty()) settings.max_length = TrialLength::parse(max_length, "--max_length");
  if (!validation_period.empty()) settings.validation_period = TrialLength::parse(validation_period, "--validation_period");
  if (!checkpoint_period.empty()) settings.checkpoint_period = TrialLength::parse(checkpoint_period, "--checkpoint_period");
  settings.smaller_is_better = !larger_is_better;

  auto collected = trials::collect_hparams(sources);
  settings.hparams = std::move(collected.hparams);
  settings.given = std::move(collected.given);
  settings.check();
  if (options.handle_signals && !settings.stop) settings.stop = std::make_shared<StopSignals>();
  return settings;
}

}  // namespace gannet
