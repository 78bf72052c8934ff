// Fine-tunes a T5 on sentence pairs and translates, with the arguments of transformers'
// run_translation.py.
//
//   translation --model_name_or_path T5 --dataset_name examples/translation/numbers --dataset_config ro-en
//       --source_lang en --target_lang ro --source_prefix "translate English to Romanian: " --output_dir out
//       --deepspeed examples/translation/ds_config_zero3.json --do_train --do_eval --predict_with_generate
//   gannet run --num_procs 2 translation --model_name_or_path out ... --do_eval --predict_with_generate     # ZeRO inference
//   translation --help
//
// T5 is a folder in the format of transformers: config.json, model.safetensors, spiece.model.
// Without spiece.model, a vocabulary is first trained on the pairs.
#include <ATen/ops/full.h>
#include <gannet/gannet.h>
#include <gannet/generate.h>
#include <gannet/log.h>
#include <gannet/models/t5.h>
#include <gannet/trainer.h>
#include <torch/data/example.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "bleu.h"
#include "options.h"
#include "pairs.h"
#include "results.h"
#include "vocabulary.h"

namespace {

namespace fs = std::filesystem;
using gannet::Error;
using gannet::ErrorCode;
using gannet::Example;
using gannet::models::T5;
using gannet::models::T5Impl;
using translation::Options;
using translation::Pair;
using translation::Vocabulary;

constexpr int64_t kNoLabel = -100;

std::vector<int64_t> tokens_of(const at::Tensor& row) {
  const at::Tensor whole = row.to(at::kCPU).contiguous();
  return {whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel()};
}

// Stacks rows of tokens, padded on the right, to [rows, width].
at::Tensor padded(const std::vector<std::vector<int64_t>>& rows, int64_t width, int64_t filler) {
  for (const auto& row : rows) width = std::max(width, static_cast<int64_t>(row.size()));
  at::Tensor all = at::full({static_cast<int64_t>(rows.size()), width}, filler, at::kLong);
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy(rows[i].begin(), rows[i].end(), all.mutable_data_ptr<int64_t>() + static_cast<int64_t>(i) * width);
  return all;
}

std::vector<Example> samples_of(const std::vector<Pair>& pairs, const Options& options, const Vocabulary& vocabulary,
                                int64_t longest_target) {
  std::vector<Example> samples;
  for (const Pair& pair : pairs) {
    const auto source = vocabulary.encode(options.source_prefix + pair.source, options.max_source_length);
    const auto target = vocabulary.encode(pair.target, longest_target);
    samples.emplace_back(padded({source}, 0, vocabulary.pad())[0], padded({target}, 0, kNoLabel)[0]);
  }
  return samples;
}

// Makes a batch: sources [B, T] with padding, and labels [B, L] padded with -100 (or with pad
// tokens that count towards the loss).
gannet::Collate<Example> collator(const Options& options, int64_t pad) {
  const int64_t source_width = options.pad_to_max_length ? options.max_source_length : 0;
  const int64_t target_width = options.pad_to_max_length ? options.max_target_length : 0;
  const int64_t no_label = options.ignore_pad_token_for_loss ? kNoLabel : pad;
  return [=](std::vector<Example> samples) {
    std::vector<std::vector<int64_t>> sources, targets;
    for (const Example& sample : samples) {
      sources.push_back(tokens_of(sample.data));
      targets.push_back(tokens_of(sample.target));
    }
    return Example(padded(sources, source_width, pad), padded(targets, target_width, no_label));
  };
}

// Computes a batch's loss and, in an evaluation that generates, also the generated tokens.
struct TranslationLoss {
  double label_smoothing;
  bool generates;
  gannet::GenerateOptions how;
  int64_t pad;

  gannet::BatchLoss operator()(gannet::Engine<T5Impl>& engine, Example& batch) const {
    const std::optional<at::Tensor> mask = batch.data.ne(pad);
    const at::Tensor loss = label_smoothing > 0 ? smoothed(engine, batch, mask) : engine.forward(batch.data, batch.target, mask);
    if (!generates || engine.module()->is_training()) return loss;
    gannet::TokenLists prompts;
    for (int64_t i = 0; i < batch.data.size(0); ++i) {
      prompts.push_back(tokens_of(batch.data[i]));
      std::erase(prompts.back(), pad);
    }
    return {loss, padded(gannet::generate(engine, prompts, how), 1, kNoLabel), batch.target};
  }
  at::Tensor smoothed(gannet::Engine<T5Impl>& engine, Example& batch, const std::optional<at::Tensor>& mask) const {
    const at::Tensor logits =
        engine.call([&](T5Impl& model) { return model.logits(batch.data, model.shifted(batch.target), mask); });
    return gannet::summed_loss(logits, batch.target, label_smoothing) / static_cast<double>(gannet::count_labels(batch.target));
  }
};

std::vector<std::string> texts_of(const at::Tensor& rows, const Vocabulary& vocabulary) {
  std::vector<std::string> texts;
  for (int64_t i = 0; i < rows.size(0); ++i) texts.push_back(vocabulary.decode(tokens_of(rows[i])));
  return texts;
}

// Returns BLEU, the fraction of texts that equal the reference, and the number of tokens per text,
// rounded as in run_translation.py.
gannet::Metrics metrics_of(const gannet::EvalPrediction& prediction, const Vocabulary& vocabulary) {
  const auto texts = texts_of(prediction.predictions, vocabulary), wanted = texts_of(prediction.label_ids, vocabulary);
  double exact = 0;
  for (size_t i = 0; i < texts.size(); ++i) exact += texts[i] == wanted[i] ? 1 : 0;
  const at::Tensor counts = prediction.predictions.ne(kNoLabel).logical_and(prediction.predictions.ne(vocabulary.pad()));
  const auto count = static_cast<double>(texts.size());
  const auto rounded = [](double value) { return std::round(value * 1e4) / 1e4; };
  return {{"bleu", rounded(translation::bleu(texts, wanted))},
          {"exact_match", rounded(exact / count)},
          {"gen_len", rounded(counts.sum().item<double>() / count)}};
}

// Resumes an interrupted run from its last checkpoint. Does not overwrite another run's files
// unless asked to.
void look_at_output_folder(gannet::TrainingArguments& arguments, const Options& options) {
  const fs::path folder = arguments.output_dir;
  if (!arguments.do_train || options.overwrite_output_dir || !arguments.resume_from_checkpoint.empty()) return;
  if (!fs::is_directory(folder) || fs::is_empty(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("checkpoint-")) {
      arguments.resume_from_checkpoint = "last";
      return;
    }
  throw Error(ErrorCode::kArgument, "output_dir " + folder.string() + " has files, and no checkpoint to resume from",
              "choose another folder, or give --overwrite_output_dir");
}

// Returns the vocabulary file: the given one, the model's, or one that rank 0 trains on the pairs
// before training.
std::string vocabulary_file(const Options& options, const gannet::TrainingArguments& arguments, int64_t largest,
                            gannet::ProcessGroup& world) {
  const auto within = [](const std::string& place) {
    return fs::is_directory(place) ? fs::path(place) / "spiece.model" : fs::path(place);
  };
  if (!options.tokenizer_name.empty()) return within(options.tokenizer_name);
  if (const fs::path models = within(options.model_name_or_path); fs::exists(models)) return models;
  // A model whose vocabulary is in a different format must not get a new one.
  if (fs::exists(fs::path(options.model_name_or_path) / "tokenizer.json"))
    throw Error(ErrorCode::kUnsupported,
                options.model_name_or_path + " has a tokenizer.json, which is not read, and no spiece.model",
                "put the tokenizer's spiece.model into the folder, or name it by --tokenizer_name");
  const fs::path own = fs::path(arguments.output_dir) / "spiece.model";
  const bool is_fresh = arguments.do_train && arguments.resume_from_checkpoint.empty();
  world.barrier();  // now all ranks have checked the model's folder
  if (is_fresh && world.rank() == 0) {
    std::vector<std::string> sentences;
    for (const Pair& pair :
         translation::read_pairs(translation::file_of(options, "train"), options.source_lang, options.target_lang)) {
      sentences.push_back(options.source_prefix + pair.source);
      sentences.push_back(pair.target);
    }
    Vocabulary::train(sentences, largest, own);
    gannet::log_info(options.model_name_or_path + " has no spiece.model: a vocabulary was trained on the pairs, " + own.string());
  }
  world.barrier();
  if (!fs::exists(own))
    throw Error(ErrorCode::kNotFound, options.model_name_or_path + " has no spiece.model",
                "give one by --tokenizer_name; with --do_train a vocabulary is trained on the pairs");
  return own;
}

void check_vocabulary(const Vocabulary& vocabulary, const gannet::models::T5Config& config, const std::string& path) {
  if (vocabulary.size() > config.vocab_size)
    throw Error(ErrorCode::kMismatch,
                path + " has " + std::to_string(vocabulary.size()) + " pieces, and the model a vocab_size of " +
                    std::to_string(config.vocab_size),
                "take the vocabulary that the model was trained with");
  if (vocabulary.pad() != config.pad_token_id)
    throw Error(ErrorCode::kMismatch,
                path + " pads with " + std::to_string(vocabulary.pad()) + ", and the model's pad_token_id is " +
                    std::to_string(config.pad_token_id),
                "take the vocabulary that the model was trained with");
}

struct Stopwatch {
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(); }
};

int run(int argc, char** argv) {
  auto arguments = gannet::parse_training_arguments(argc, argv, {.leave = translation::option_names()});
  const Options options = translation::parse_options(argc, argv, arguments);
  look_at_output_folder(arguments, options);
  at::manual_seed(static_cast<uint64_t>(arguments.seed));

  auto model = gannet::from_pretrained<T5>(options.model_name_or_path, arguments);
  const auto world = gannet::init_distributed();  // the process group that from_pretrained joined
  const bool is_first = world->rank() == 0;
  if (is_first)
    for (const std::string& sentence : options.without_effect) gannet::log_warning(sentence);
  const std::string vocabulary_path = vocabulary_file(options, arguments, model->config().vocab_size, *world);
  const Vocabulary vocabulary(vocabulary_path);
  check_vocabulary(vocabulary, model->config(), vocabulary_path);

  const auto samples = [&](bool is_wanted, const char* split, std::optional<int64_t> limit) -> std::vector<Example> {
    if (!is_wanted) return {};
    const auto pairs =
        translation::read_pairs(translation::file_of(options, split), options.source_lang, options.target_lang, limit);
    const bool is_train = std::strcmp(split, "train") == 0;
    return samples_of(pairs, options, vocabulary,
                      is_train ? options.max_target_length : options.val_max_target_length.value_or(options.max_target_length));
  };
  const bool evaluates = arguments.do_eval || arguments.eval_strategy != "no";
  const auto train = samples(arguments.do_train, "train", arguments.max_train_samples);
  const auto held_out = samples(evaluates, "validation", arguments.max_eval_samples);
  const auto test = samples(arguments.do_predict, "test", options.max_predict_samples);
  const auto count = [](const std::vector<Example>& some) { return static_cast<int64_t>(some.size()); };
  arguments.max_eval_samples.reset();  // was applied above, and must not limit the test samples

  gannet::TrainerParts<T5Impl> parts;
  if (arguments.do_train) parts.train_dataset = train;
  if (evaluates) parts.eval_dataset = held_out;
  parts.data_collator = collator(options, vocabulary.pad());
  parts.compute_loss = TranslationLoss{arguments.label_smoothing_factor,
                                       options.predict_with_generate,
                                       {.max_new_tokens = std::max<int64_t>(1, options.new_tokens()),
                                        .stop_tokens = {vocabulary.end()},
                                        .num_beams = options.beams()},
                                       vocabulary.pad()};
  parts.count_items = [](const Example& batch) { return static_cast<double>(gannet::count_labels(batch.target)); };
  if (options.predict_with_generate)
    parts.compute_metrics = [&](const gannet::EvalPrediction& prediction) { return metrics_of(prediction, vocabulary); };
  // Makes each checkpoint a complete model folder.
  parts.checkpoint_files = [&](const std::string& folder) {
    translation::complete_model(folder, options.model_name_or_path, vocabulary_path);
  };
  // Without training this is ZeRO inference: sharded parameters, and no state that only training
  // needs.
  parts.inference = !arguments.do_train;
  gannet::Trainer<T5Impl> trainer(model, arguments, std::move(parts));

  // Saves the metrics of "train", "eval" or "predict" with the timings and, after training, the
  // epoch.
  const auto save_metrics = [&](const std::string& split, const gannet::Metrics& metrics, int64_t samples, double seconds) {
    gannet::Dict all;
    for (const auto& [name, value] : metrics) all[name] = value;
    if (arguments.do_train) all["epoch"] = trainer.state().epoch;
    all[split + "_samples"] = samples;
    all[split + "_runtime"] = seconds;
    const double passes = split == "train" ? trainer.state().epoch : 1;
    all[split + "_samples_per_second"] = static_cast<double>(samples) * passes / seconds;
    translation::save_metrics(arguments.output_dir, split, all);
  };
  if (arguments.do_train) {
    const Stopwatch watch;
    const auto output = trainer.train();
    trainer.save_model();
    trainer.save_state();
    if (is_first) {
      translation::complete_model(arguments.output_dir, options.model_name_or_path, vocabulary_path);
      save_metrics("train", output.metrics, count(train), watch.seconds());
    }
  }
  if (arguments.do_eval) {
    const Stopwatch watch;
    const auto metrics = trainer.evaluate();
    if (is_first) save_metrics("eval", metrics, count(held_out), watch.seconds());
  }
  if (arguments.do_predict) {
    trainer.set_eval_dataset(test);
    const Stopwatch watch;
    const auto output = trainer.predict("predict");
    if (is_first) {
      save_metrics("predict", output.metrics, count(test), watch.seconds());
      if (options.predict_with_generate)
        translation::save_predictions(arguments.output_dir, texts_of(output.predictions, vocabulary));
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    for (int i = 1; i < argc; ++i)
      if (std::strcmp(argv[i], "--help") == 0) std::cout << translation::options_help() << '\n';
    return run(argc, argv);
  } catch (const std::exception& error) {
    const auto ours = gannet::error_of(error);
    std::cerr << "translation: " << (ours ? ours->what() : error.what()) << '\n';
    return ours ? ours->exit_code() : 70;
  }
}
