// Mistakes of a config: thrown at the first, or gathered so that a person sees all of them at once.
#pragma once

#include <gannet/error.h>

#include <memory>
#include <string>
#include <vector>

#include "config/resolve.h"

namespace gannet::config {

// Runs `body`. What it throws propagates to the caller, or goes into `mistakes` where the caller gathers them; false then.
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

// As Document::from_file, but for the syntax nothing is thrown: members that are wrong go to `mistakes` and are left out.
std::shared_ptr<const Document> read_file(const std::string& path, std::vector<Error>& mistakes);
// As resolve; what it returns is to be used only where there were no mistakes.
Resolved resolve(const Document& document, int64_t world_size, bool rank_is_set, std::vector<Error>& mistakes);

}  // namespace gannet::config
