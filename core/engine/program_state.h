// State that the program adds to checkpoints: its generators, counters, environments.
#pragma once

#include <gannet/value.h>

#include <functional>
#include <string>
#include <vector>

namespace gannet {

struct ProgramState {
  std::string name;
  std::function<Value()> save;                          // of this rank
  std::function<void(const std::vector<Value>&)> load;  // what every rank saved, by rank
};

}  // namespace gannet
