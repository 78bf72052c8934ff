// `gannet plugins new`: writes a plugin project that configures, builds and passes its own checks
// without changes.
#pragma once

#include "kit/options.h"

namespace gannet::kit {

// The kinds and languages that have templates.
inline constexpr const char* kKinds[] = {"optimizer", "scheduler", "offload", "comm", "accelerator"};
inline constexpr const char* kLanguages[] = {"c++", "c99"};

// Writes CMakeLists.txt, the source and README.md, prints what to do next, and returns 0. Throws
// Error(kArgument) if the name is not an identifier, the language is not available for that kind,
// or the folder is not empty; Error(kIo) if writing fails.
int new_plugin(const NewOptions& options);

}  // namespace gannet::kit
