// Model folders in the format of Hugging Face's transformers: config.json and model.safetensors (or
// its shards and their index).
#pragma once

#include <gannet/safetensors.h>

#include <string>

#include "model.h"

namespace gpt2 {

struct LoadedModel {
  Gpt model{nullptr};
  std::string config_json;  // as read, so that saving preserves keys that this program does not use
};

/// Throws gannet::Error: kNotFound if a file is missing, kCorrupt if it cannot be read,
/// kUnsupported if config.json needs a feature that this example lacks, and kMismatch with the
/// first differences if the tensors do not match the config.
LoadedModel load_model(const std::string& folder, bool plain_operators = false);

/// Writes config.json. `config_json` is what load_model returned, or "" for a new model.
void save_config(const std::string& folder, const GptOptions& options, const std::string& config_json);
/// Writes config.json and model.safetensors (fp32).
void save_model(const std::string& folder, const GptOptions& options, const std::string& config_json,
                const gannet::NamedTensors& parameters);

}  // namespace gpt2
