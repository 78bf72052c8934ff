// The program gannet-train, in libexec/gannet: `gannet train` runs it.
//
//   gannet train --model model/ --data tokens.bin --seq_len 1024 --deepspeed ds_config.json --max_steps 1000 --output_dir out
//   gannet run --num_procs 2 gannet train --model model/ --data train/ --eval_data test/ --do_eval --output_dir out
#include <ATen/Context.h>
#include <gannet/exported.h>
#include <gannet/files_dataset.h>
#include <gannet/torch_script.h>
#include <gannet/trainer.h>

#include <algorithm>
#include <concepts>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/text.h"
#include "train/folder.h"
#include "train/options.h"

namespace gannet::train {
namespace {

// The inputs of a model, and the files that its folder has beside the weights.
struct Facts {
  std::vector<std::string> inputs, optional;  // `inputs` has all of them
  std::vector<std::pair<std::string, std::string>> tied;
  std::function<void(const std::string& folder)> copy_files;
};

Facts facts_of(const ExportedModule& model, const std::string& path) {
  Facts facts;
  for (const ExportedGraph& graph : model.config().graphs())
    for (const ExportedInput& input : graph.inputs)
      if (std::find(facts.inputs.begin(), facts.inputs.end(), input.name) == facts.inputs.end())
        facts.inputs.push_back(input.name);
  facts.tied = model.config().tied;
  facts.copy_files = [path](const std::string& folder) { copy_graphs(path, folder); };
  return facts;
}

Facts facts_of(const TorchScriptModule& model, const std::string&) {
  Facts facts;
  for (const TorchScriptModule::Input& input : model.inputs()) {
    facts.inputs.push_back(input.name);
    if (!input.is_needed) facts.optional.push_back(input.name);
  }
  facts.tied = model.tied();
  facts.copy_files = [tied = facts.tied](const std::string& folder) { write_torch_script_config(folder, tied); };
  return facts;
}

// The data must have exactly the model's inputs. This is checked before training: the model would
// refuse the first training batch, but an evaluation batch only after an epoch.
void require_inputs(const Facts& model, const FilesDataset& data, const std::string& path) {
  std::vector<std::string> missing, unknown;
  const std::vector<std::string>& inputs = model.inputs;
  const std::vector<std::string> names = data.names();
  const auto lacks = [](const std::vector<std::string>& all, const std::string& one) {
    return std::find(all.begin(), all.end(), one) == all.end();
  };
  for (const std::string& name : inputs)
    if (lacks(names, name) && lacks(model.optional, name)) missing.push_back(name);
  for (const std::string& name : names)
    if (lacks(inputs, name)) unknown.push_back(name);
  if (missing.empty() && unknown.empty()) return;
  std::string what = formatted("{} has {}, and the model takes {}", path, join(names, ", "), join(inputs, ", "));
  if (!missing.empty()) what += formatted("; missing: {}", join(missing, ", "));
  throw Error(ErrorCode::kMismatch, what, "there is one file for each input, under its name (`gannet model info` lists them)");
}

Dataset<NamedBatch> open_data(const Facts& model, const std::string& path, int64_t seq_len) {
  auto data = std::make_shared<FilesDataset>(path, FilesDatasetOptions{.sequence_length = seq_len});
  require_inputs(model, *data, path);
  return data;
}

bool is_tokens(const std::string& path) {
  return (path.ends_with(".npy") || path.ends_with(".bin")) && !std::filesystem::is_directory(path);
}

// --seq_len applies to files of tokens; the other data may be a folder. If no data are tokens, the
// dataset refuses it.
int64_t length_for(const std::string& path, const Options& options) {
  return is_tokens(path) || !(is_tokens(options.data) || is_tokens(options.eval_data)) ? options.seq_len : 0;
}

double items_of(const NamedBatch& batch, const std::string& input) {
  const auto found = batch.find(input);
  if (found == batch.end())
    throw Error(ErrorCode::kArgument, formatted("--items names '{}', and a batch does not have it", input),
                "name an input of the model");
  return static_cast<double>(count_labels(found->second));
}

template <class Model>
void train(const std::shared_ptr<Model>& model, const TrainingArguments& arguments, const Options& options) {
  const Facts facts = facts_of(*model, options.model);
  TrainerParts<Model, NamedBatch> parts;
  parts.train_dataset = open_data(facts, options.data, length_for(options.data, options));
  if (!options.eval_data.empty())
    parts.eval_dataset = open_data(facts, options.eval_data, length_for(options.eval_data, options));
  parts.data_collator = Collate<NamedBatch>(stack_named);
  if (!options.items.empty()) parts.count_items = [&](const NamedBatch& batch) { return items_of(batch, options.items); };
  parts.checkpoint_files = facts.copy_files;
  if constexpr (std::same_as<Model, TorchScriptModule>) {
    if (arguments.label_smoothing_factor > 0)
      throw Error(ErrorCode::kArgument,
                  "--label_smoothing_factor needs logits, and the model of a TorchScript file returns its loss",
                  "compute the smoothed loss in the Python model, and save it again");
    parts.compute_loss = [](Engine<Model>& engine, NamedBatch& batch) -> BatchLoss { return engine.forward(batch); };
  }

  Trainer<Model, NamedBatch> trainer(model, arguments, std::move(parts));
  const TrainOutput output = trainer.train();
  trainer.save_model();  // before the evaluation, which may fail
  if (trainer.state().is_world_process_zero) {
    facts.copy_files(arguments.output_dir);
    write_every_name(arguments.output_dir, facts.tied);
  }
  Metrics metrics;
  if (!options.eval_data.empty()) metrics = trainer.evaluate();
  trainer.save_state();
  if (trainer.state().is_world_process_zero) {
    std::cout << formatted("{} updates, training loss {}", output.global_step, output.training_loss);
    if (const auto loss = metrics.find("eval_loss"); loss != metrics.end())
      std::cout << formatted(", evaluation loss {}", loss->second);
    std::cout << formatted("; the model is in {}\n", arguments.output_dir);
  }
}

// "model/" is "model" in messages.
void strip_slashes(std::string& path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
}

int run(int argc, char** argv) {
  TrainingArguments arguments = parse_training_arguments(argc, argv, {.leave = option_names()});
  Options options = parse_options(argc, argv);
  strip_slashes(options.model);
  strip_slashes(arguments.output_dir);
  std::error_code ignored;
  if (std::filesystem::equivalent(options.model, arguments.output_dir, ignored))
    throw Error(ErrorCode::kArgument,
                formatted("--output_dir is the model's folder, {}: its weights would be overwritten", options.model),
                "give another --output_dir");
  at::manual_seed(static_cast<uint64_t>(arguments.seed));
  const bool evaluates = arguments.do_eval || arguments.eval_strategy != "no";
  if (evaluates && options.eval_data.empty())
    throw Error(ErrorCode::kArgument, "an evaluation is asked for, without --eval_data", "give --eval_data PATH");
  if (std::filesystem::is_regular_file(options.model))
    train(std::make_shared<TorchScriptModule>(options.model), arguments, options);
  else
    train(from_pretrained<ExportedModule>(options.model, arguments), arguments, options);
  return 0;
}

}  // namespace
}  // namespace gannet::train

int main(int argc, char** argv) {
  try {
    return gannet::train::run(argc, argv);
  } catch (const std::exception& error) {
    const auto ours = gannet::error_of(error);
    std::cerr << "gannet train: " << (ours ? ours->what() : error.what()) << '\n';
    return ours ? ours->exit_code() : 70;
  }
}
