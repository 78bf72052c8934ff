// Open zero::GatheredParameters guards. A guard has its own values until it ends, so some calls are
// refused until then.
#pragma once

#include <gannet/engine.h>
#include <gannet/error.h>

#include <optional>
#include <string>
#include <vector>

namespace gannet {

struct Guards {
  std::vector<std::string> writing;  // the first parameter of each guard with write_from
  std::optional<Error> failed;       // error in a guard's destructor; the next audit() throws it
};

}  // namespace gannet
