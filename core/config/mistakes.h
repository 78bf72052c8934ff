// Handles mistakes in a config: either the first is thrown, or all are collected so that they can
// be shown together.
#pragma once

#include <gannet/error.h>

#include <memory>
#include <string>
#include <vector>

#include "config/resolve.h"

namespace gannet::config {

// Runs `body`. If `mistakes` is null, an error propagates to the caller; otherwise it is added to
// `mistakes`, and false is returned.
template <typename Body>
bool attempt(std::vector<Error>* mistakes, Body&& body) {
  if (!mistakes) {
    body();
    return true;
  }
  try {
    body();
    return true;
  } catch (const Error& error) {
    mistakes->push_back(error);
    return false;
  }
}

// Like Document::from_file, but throws only for syntax errors: invalid members are reported in
// `mistakes` and left out.
std::shared_ptr<const Document> read_file(const std::string& path, std::vector<Error>& mistakes);
// Like resolve(), for a run of `ranks` processes; a mesh that does not divide them is also a mistake.
// The result may be used only if there were no mistakes.
ResolvedConfig resolve(const Document& document, int64_t ranks, std::vector<Error>& mistakes);

}  // namespace gannet::config
