// Model folders as Hugging Face's transformers writes them: config.json beside model.safetensors (or its shards and their index).
#pragma once

#include <gannet/safetensors.h>

#include <string>

#include "model.h"

namespace gpt2 {

struct LoadedModel {
  Gpt model{nullptr};
  std::string config_json;  // as read, so that saving keeps what this program has no use for
};

/// Throws gannet::Error: kNotFound without the files, kCorrupt where they cannot be read, kUnsupported where config.json asks
/// for what this example lacks, kMismatch with the first differences where the tensors do not fit the config.
LoadedModel load_model(const std::string& folder, bool plain_operators = false);

/// Writes config.json and model.safetensors (fp32). `config_json` is that of load_model, or "" for a new model.
void save_model(const std::string& folder, const GptOptions& options, const std::string& config_json,
                const gannet::NamedTensors& parameters);

}  // namespace gpt2
