// The strict pass over a tree as written: looks up every key in the key table and converts every
// value.
#pragma once

#include <gannet/error.h>

#include <vector>

#include "config/document.h"
#include "config/gannet_sections.h"

namespace gannet::config {

// Unknown keys, wrong types and values out of range are Error(kConfig) with their position. Aliases
// and deprecated keys are renamed (deprecated ones leave a notice), `"zero_optimization": true`
// becomes a stage, notes are dropped.
// With `mistakes`, nothing is thrown: every wrong member is reported there and left out of the
// result. `own`: the program's sections, or null.
Tree normalize(const Tree& written, std::vector<Error>* mistakes = nullptr, const OwnSections* own = nullptr);

}  // namespace gannet::config
