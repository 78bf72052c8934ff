// Shell completion scripts for `gannet`, generated from the command tree.
#pragma once

#include <string>

#include "cli/tree.h"

namespace gannet::cli {

std::string bash_completion(const CommandInfo& root);
std::string zsh_completion(const CommandInfo& root);
std::string fish_completion(const CommandInfo& root);

}  // namespace gannet::cli
