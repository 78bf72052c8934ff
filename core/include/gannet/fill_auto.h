/// Fills the "auto" values of a config from a program's training arguments, under Hugging Face's
/// names.
///
///   gannet::Config config("ds_config.json");
///   gannet::fill_auto(config, gannet::Dict{{"learning_rate", 3e-5}, {"per_device_train_batch_size", 8}},
///                     {.world_size = 2, .num_training_steps = 5000, .hidden_size = 512});
///
/// If arguments contradict values of the config, Error(kConfig) lists all such pairs, with the
/// places of both values. Equal values in different spellings (8 and "8") do not
/// contradict. Missing arguments have Hugging Face's defaults and never contradict. Values that no
/// argument determines stay "auto".
#pragma once

#include <gannet/config.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gannet {

/// Facts that are not among the arguments.
struct AutoFacts {
  int64_t world_size = 1;
  std::optional<int64_t> num_training_steps = {};  ///< number of updates in the run; absent: max_steps if that is above 0
  std::optional<int64_t> hidden_size = {};         ///< the model's hidden size; `hidden_size_of` reads it from a config.json
  /// If the number of updates is unknown, values that depend on it get a placeholder with the
  /// origin kKnownLater, as `gannet config resolve` prints it. false: they stay "auto".
  bool steps_are_known_later = false;
  bool add_missing = true;  ///< adds AdamW and the schedule of lr_scheduler_type if the config has no entry
};

inline constexpr const char* kKnownLater = "known when training starts";

Config& fill_auto(Config& config, const Dict& arguments, const AutoFacts& facts);

/// For a config that fill_auto has filled: returns one message for each argument that was ignored
/// because the config's own optimizer or scheduler has no such entry.
std::vector<std::string> arguments_without_effect(const Config& config, const Dict& arguments);

/// Fills only the sizes of ZeRO that follow from the model's width (reduce_bucket_size,
/// stage3_prefetch_bucket_size, stage3_param_persistence_threshold), and no other "auto". Building
/// a model under zero::Init needs these sizes.
Config& fill_auto_sizes(Config& config, int64_t hidden_size);

/// Throws Error(kArgument) if there is no lr_scheduler_type of this name, or if one of `kwargs` is
/// not a parameter of it.
void check_lr_schedule(const std::string& type, const Dict& kwargs);

/// Returns hidden_size, n_embd, d_model, the largest of hidden_sizes, or text_config's; nullopt if
/// the model has none of them.
std::optional<int64_t> hidden_size_of(const Dict& model_config);

}  // namespace gannet
