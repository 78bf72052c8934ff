// What an exported model's folder has beside the weights, copied to a folder with trained weights, which is then one that
// `gannet model`, `gannet train` and Python read.
#pragma once

#include <string>

namespace gannet::train {

// The probe stays behind: its losses are those of the weights before training.
void copy_graphs(const std::string& model, const std::string& folder);

}  // namespace gannet::train
