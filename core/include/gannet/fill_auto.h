/// Fills the "auto" values of a config from a program's training arguments, under Hugging Face's names.
///
///   gannet::Config config("ds_config.json");
///   gannet::fill_auto(config, gannet::Dict{{"learning_rate", 3e-5}, {"per_device_train_batch_size", 8}},
///                     {.world_size = 2, .num_training_steps = 5000, .hidden_size = 512});
///
/// A given argument that contradicts a value of the config is an Error(kConfig) that lists every such pair, each with both
/// places. Equal values in different spellings (8 and "8") do not contradict. Arguments that are absent have Hugging Face's
/// defaults and never contradict. Values that nothing gives stay "auto".
#pragma once

#include <gannet/config.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gannet {

/// What no argument says.
struct AutoFacts {
  int64_t world_size = 1;
  std::optional<int64_t> num_training_steps = {};  ///< updates of the run; absent: max_steps where that is above 0
  std::optional<int64_t> hidden_size = {};         ///< of the model; `hidden_size_of` reads it from a config.json
  /// Where nothing says how many updates there are: what depends on it gets a stand-in with the origin kKnownLater, as
  /// `gannet config resolve` prints it. false: that stays "auto".
  bool steps_are_known_later = false;
  bool add_missing = true;  ///< AdamW and the schedule of lr_scheduler_type where the config has no entry
};

inline constexpr const char* kKnownLater = "known when training starts";

Config& fill_auto(Config& config, const Dict& arguments, const AutoFacts& facts);

/// Of the given arguments, in a config that fill_auto has filled: a sentence for each that nothing of it goes by, since its own
/// optimizer or scheduler has no such entry.
std::vector<std::string> arguments_without_effect(const Config& config, const Dict& arguments);

/// Fills the sizes of ZeRO that follow from the model's width alone (reduce_bucket_size, stage3_prefetch_bucket_size,
/// stage3_param_persistence_threshold), and no other "auto": what building a model under zero::Init goes by.
Config& fill_auto_sizes(Config& config, int64_t hidden_size);

/// Error(kArgument) where there is no such lr_scheduler_type, or where it has no parameter of one of these names.
void check_lr_schedule(const std::string& type, const Dict& kwargs);

/// hidden_size, n_embd, d_model, the largest of hidden_sizes, or text_config's; nullopt where the model names none of them.
std::optional<int64_t> hidden_size_of(const Dict& model_config);

}  // namespace gannet
