// `gannet plugins new`: a plugin's project, which configures, builds and passes its own checks as it is written.
#pragma once

#include "kit/options.h"

namespace gannet::kit {

// The kinds and languages that there are templates of.
inline constexpr const char* kKinds[] = {"optimizer", "scheduler", "offload", "comm", "accelerator"};
inline constexpr const char* kLanguages[] = {"c++", "c99"};

// Writes CMakeLists.txt, the source and README.md, prints what to do next, and returns 0. Throws Error(kArgument) where the name
// is no identifier, the language is not for that kind, or the folder holds something already; Error(kIo) where it cannot write.
int new_plugin(const NewOptions& options);

}  // namespace gannet::kit
