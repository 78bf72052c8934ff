// Copies the rest of an exported model's folder to a folder with trained weights, so that `gannet
// model`, `gannet train` and Python can read it.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gannet::train {

// The probe stays behind: its losses are those of the weights before training.
void copy_graphs(const std::string& model, const std::string& folder);

// A TorchScript file is not copied: its weights are those before training. config.json states what the weights are of, and
// their other names, for `gannet checkpoint export`.
void write_torch_script_config(const std::string& folder, const std::vector<std::pair<std::string, std::string>>& tied);

// Adds tied tensors to `folder`/model.safetensors under their other names, which a strict load_state_dict expects. `tied`:
// another name, and the one under which the value is stored.
void write_every_name(const std::string& folder, const std::vector<std::pair<std::string, std::string>>& tied);

}  // namespace gannet::train
