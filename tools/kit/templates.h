// The files of tools/kit/templates as they are embedded: without ".in" in their names, with @name@ and its like in their texts.
#pragma once

#include <string_view>

namespace gannet::kit {

struct Template {
  std::string_view file;  // "optimizer.cpp", "README.md"
  std::string_view text;
};

}  // namespace gannet::kit
