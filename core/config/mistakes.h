// Mistakes in a config: the first is thrown, or all are collected to be shown together.
#pragma once

#include <gannet/error.h>

#include <memory>
#include <string>
#include <vector>

#include "config/resolve.h"

namespace gannet::config {

// Runs `body`. An error propagates to the caller; if the caller collects mistakes, it is added to
// `mistakes` and false returned.
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

// Like Document::from_file, but throws only for syntax errors: wrong members go to `mistakes` and
// are left out.
std::shared_ptr<const Document> read_file(const std::string& path, std::vector<Error>& mistakes);
// Like resolve(). The result may be used only if there were no mistakes.
ResolvedConfig resolve(const Document& document, int64_t world_size, bool rank_is_set, std::vector<Error>& mistakes);

}  // namespace gannet::config
