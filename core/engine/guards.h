// zero::GatheredParameters that are open, and what other calls may not do meanwhile: a guard has values of its own until it ends.
#pragma once

#include <gannet/engine.h>
#include <gannet/error.h>

#include <optional>
#include <string>
#include <vector>

namespace gannet {

struct Guards {
  std::vector<std::string> writing;  // of each guard with write_from: its first parameter
  std::optional<Error> failed;       // of a destructor, which can only log it: the next call of a step throws it
};

}  // namespace gannet
