// `gannet plugins check`: runs all checks on a plugin file.
#pragma once

#include "kit/options.h"

namespace gannet::kit {

// Prints the report. Returns 0 if every check passed, was skipped or was excluded; 1 if one failed.
// Throws Error if the kit cannot open the file as a plugin, or the options are wrong.
int check_file(const CheckOptions& options);

}  // namespace gannet::kit
