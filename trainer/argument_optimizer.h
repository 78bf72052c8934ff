// The optimizer that the arguments select, for a config without an optimizer entry.
#pragma once

#include <gannet/training_arguments.h>

#include <string>
#include <vector>

namespace gannet::arguments {

// The values of transformers' argument optim that an optimizer plugin implements.
std::vector<std::string> optimizers();

// Returns the config's optimizer entry for these arguments.
Dict optimizer_entry(const TrainingArguments& arguments);

}  // namespace gannet::arguments
