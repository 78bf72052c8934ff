// The strict pass over a tree as it was written: every key is looked up in the key table, every value converted.
#pragma once

#include "config/document.h"

namespace gannet::config {

// Unknown keys, wrong types and values out of range are Error(kConfig) with their position. Aliases and deprecated keys get
// their present name (deprecated ones leave a notice), `"zero_optimization": true` becomes a stage, notes are dropped.
Tree normalize(const Tree& written);

}  // namespace gannet::config
