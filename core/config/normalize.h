// The strict check of a tree as written: looks up every key in the key table and converts every
// value.
#pragma once

#include <gannet/error.h>

#include <vector>

#include "config/document.h"
#include "config/gannet_sections.h"

namespace gannet::config {

// Throws Error(kConfig) with the position for an unknown key, a wrong type or a value out of range.
// Aliases and deprecated keys are renamed (a deprecated key leaves a notice), `"zero_optimization":
// true` becomes a stage, and the user's notes are dropped. If `mistakes` is given, nothing is
// thrown: every invalid member is reported there and left out of the result. `own`: the program's
// own sections, or null.
Tree normalize(const Tree& written, std::vector<Error>* mistakes = nullptr, const OwnSections* own = nullptr);

}  // namespace gannet::config
