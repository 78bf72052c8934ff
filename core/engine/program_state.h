// State that the program adds to checkpoints: its generators, counters, environments.
#pragma once

#include <gannet/value.h>

#include <functional>
#include <string>
#include <vector>

namespace gannet {

struct ProgramState {
  std::string name;
  std::function<Value()> save;                          // returns this rank's state
  std::function<void(const std::vector<Value>&)> load;  // gets the states that the ranks of the data axis saved, in order
};

}  // namespace gannet
