// The optimizer that the arguments stand for, where the config has no entry of its own.
#pragma once

#include <gannet/training_arguments.h>

#include <string>
#include <vector>

namespace gannet::arguments {

// transformers' names that a plugin serves, for the argument optim.
std::vector<std::string> optimizers();

// The config's optimizer entry for them.
Dict optimizer_entry(const TrainingArguments& arguments);

}  // namespace gannet::arguments
