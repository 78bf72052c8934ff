// Completes the weights of a model that gannet_export wrote, for Python: a strict load_state_dict expects every
// name of a tied tensor, and from_pretrained of transformers the model's own config.json.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/export.h"

namespace gannet::convert {

struct ExportedModelFiles {
  std::vector<std::pair<std::string, std::string>> tied;  // another name, and the name under which the value is stored
  std::string python_config;                              // a path; "" for a model of another library than transformers
};

// Reads the files of the first of `folders` that holds an exported model; nullopt if none does.
// Throws Error(kCorrupt) if the list of ties is damaged.
std::optional<ExportedModelFiles> exported_model_files(const std::vector<std::string>& folders);

// `format`: safetensors stores a tied tensor once per name; a .bin file stores it once.
void add_every_name(const ExportedModelFiles& model, const checkpoint::ExportFormat& format, checkpoint::ExportSource& source);

// Copies the Python model's config to `folder`/config.json. Returns a line about it; "" if there is none to copy.
std::string copy_python_config(const ExportedModelFiles& model, const std::string& folder);

}  // namespace gannet::convert
