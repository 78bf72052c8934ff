// Finds config keys that Gannet does not implement, and keys that have no effect.
#pragma once

#include <gannet/error.h>

#include <string>
#include <vector>

#include "config/document.h"

namespace gannet::config {

// Throws Error(kUnsupported) on the first key that Gannet does not implement, unless its value
// requests nothing: a default is legal, and so is a section that is switched off. Returns one
// notice for each reason why some of the given keys have no effect. If `mistakes` is given, nothing
// is thrown: an error for every such key is added there.
std::vector<std::string> check_status(const Document& document, std::vector<Error>* mistakes = nullptr);

}  // namespace gannet::config
