#include "options.h"

#include <gannet/error.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

namespace gpt2 {

Options parse_options(int argc, char** argv) {
  Options options;
  options.config = gannet::take_config_arguments(argc, argv);

  CLI::App app(
      "Trains a GPT-2 with Gannet. Without --model a small one from scratch, without --tokens on text that this machine has.");
  app.add_option("--model", options.model, "folder with config.json and model.safetensors, as transformers writes them");
  app.add_option("--tokens", options.tokens, "file of tokens: each byte is one");
  app.add_option("--token-bytes", options.token_bytes, "bytes of a token: 1, or 2 for little-endian uint16")
      ->check(CLI::IsMember({1, 2}));
  app.add_option("--seq-len", options.sequence_length, "tokens of a sample")->check(CLI::PositiveNumber)->capture_default_str();
  auto* steps = app.add_option("--steps", options.steps, "optimizer steps; 20, or 1500 for a new model on its own text")
                    ->check(CLI::NonNegativeNumber);
  app.add_option("--metrics", options.metrics, "file to write a JSON line to for every step");
  app.add_option("--save-model", options.save_model, "folder to write config.json and model.safetensors (fp32) to at the end");
  auto* save = app.add_option("--save-checkpoint", options.save_checkpoint,
                              "folder to write a checkpoint to: at the end, and on SIGTERM or SIGUSR1");
  app.add_option("--checkpoint-every", options.checkpoint_every, "write one every so many steps, too")
      ->check(CLI::PositiveNumber)
      ->needs(save);
  app.add_option("--load-checkpoint", options.load_checkpoint,
                 "folder of a checkpoint to resume from, for --steps further steps");
  app.add_flag("--resume", options.resume,
               "resume from the folder of --save-checkpoint if it has one; --steps counts from the first start")
      ->needs(save)
      ->excludes("--load-checkpoint");
  app.add_flag("--plain-operators", options.architecture.plain_operators,
               "round 16-bit activations where transformers' GPT-2 does; takes longer");
  app.add_flag("--give-memory-back", options.give_memory_back,
               "return freed memory to the system at once: for runs under a tight limit");
  app.add_option("--pipeline", options.pipeline,
                 "stages of a pipeline, which divide the processes and the model's layers among them (docs/pipeline.md)")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", options.threads, "threads of this process; default: the cores divided among the processes")
      ->check(CLI::PositiveNumber);
  app.add_option("--layers", options.architecture.layers, "layers of a new model")->capture_default_str();
  auto* vocabulary = app.add_option("--vocabulary", options.architecture.vocabulary,
                                    "vocabulary of a new model; default: what a token's bytes can say");
  app.add_option("--width", options.architecture.width, "width of a new model")->capture_default_str();
  app.add_option("--heads", options.architecture.heads, "attention heads of a new model")->capture_default_str();
  app.add_option("--init-range", options.architecture.initializer_range, "deviation of a new model's weights")
      ->capture_default_str();
  app.add_option("--positions", options.architecture.positions, "longest sequence of a new model")->capture_default_str();
  app.add_option("--seed", options.seed, "seed of a new model's weights, of dropout and of generation")->capture_default_str();
  auto* generate = app.add_option("--generate", options.generate, "tokens that each process writes after training")
                       ->check(CLI::NonNegativeNumber);
  app.add_option("--prompt", options.prompts, "text that the generated one continues; given again: for the next process")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  auto* validation = app.add_option("--validation-fraction", options.validation_fraction,
                                    "share of the tokens, from their end, that is held out")
                         ->check(CLI::Range(0.0, 0.5));
  app.footer(std::string("Config:\n") + gannet::ConfigArguments::help());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }

  if (options.config.config.empty()) options.config.config = GPT2_SOURCE_DIR "/ds_config.json";
  if (options.tokens.empty()) {  // the demonstration holds text out and generates some
    if (!*validation) options.validation_fraction = 0.1;
    if (!*generate) options.generate = 400;
  }
  if (!*steps) options.steps = options.tokens.empty() && options.model.empty() ? 1500 : 20;
  if (options.token_bytes == 2 && vocabulary->count() == 0) options.architecture.vocabulary = 65536;
  options.architecture.positions = std::max(options.architecture.positions, options.sequence_length);
  return options;
}

}  // namespace gpt2
