// The options of transformers' run_translation.py other than the training arguments, under the same
// names.
//
//   translation::Options options;
//   auto arguments = gannet::parse_training_arguments(argc, argv, {.leave = translation::option_names()});
//   options = translation::parse_options(argc, argv, arguments);   // parses the remaining arguments
#pragma once

#include <gannet/training_arguments.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace translation {

struct Options {
  std::string model_name_or_path, tokenizer_name;
  std::string source_lang, target_lang, source_prefix;
  std::string dataset_name, dataset_config_name, train_file, validation_file, test_file;
  int64_t max_source_length = 1024, max_target_length = 128;
  std::optional<int64_t> val_max_target_length, generation_max_length, num_beams, generation_num_beams, max_predict_samples;
  bool pad_to_max_length = false, ignore_pad_token_for_loss = true;
  bool predict_with_generate = false, overwrite_output_dir = false;

  std::vector<std::string> without_effect;  ///< warnings about given options that are ignored

  /// The maximum number of tokens of a generated text: generation_max_length, val_max_target_length
  /// or max_target_length, minus the decoder's first token, which these include.
  int64_t new_tokens() const;
  int64_t beams() const { return num_beams.value_or(generation_num_beams.value_or(1)); }
};

/// Returns "--model_name_or_path", ...: the options that parse_training_arguments must leave.
std::vector<std::string> option_names();
/// Throws an Error(kArgument) that lists all mistakes: wrong types, missing options, unsupported
/// values.
Options parse_options(int argc, char** argv, const gannet::TrainingArguments& arguments);
std::string options_help();

/// Returns the file of a split ("train", "validation", "test"): the one that an option names, or
/// else the one in dataset_name's folder. Throws Error(kNotFound) if there is no such folder.
std::string file_of(const Options& options, const std::string& split);

}  // namespace translation
