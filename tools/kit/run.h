// `gannet plugins check`: all checks of a plugin's file.
#pragma once

#include "kit/options.h"

namespace gannet::kit {

// Prints the report. 0 where every check passed, was skipped or excluded; 1 where one failed. Throws Error where the file is no
// plugin that the kit can open, or the options are wrong.
int check_file(const CheckOptions& options);

}  // namespace gannet::kit
