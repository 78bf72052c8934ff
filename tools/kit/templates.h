// The embedded files of tools/kit/templates: names without ".in", texts with placeholders such as
// @name@.
#pragma once

#include <string_view>

namespace gannet::kit {

struct Template {
  std::string_view file;  // "optimizer.cpp", "README.md"
  std::string_view text;
};

}  // namespace gannet::kit
