// Variables to set on every host: --env, and .deepspeed_env files as in DeepSpeed.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gannet::launch {

using Exports = std::vector<std::pair<std::string, std::string>>;  // a later entry of the same name wins

// NAME=VALUE on each line; blank lines and those that begin with # are skipped. Values are literal,
// quotes included; quotes add a note to `notes`. Throws Error(kArgument) with the line number.
Exports parse_env_file(const std::string& text, const std::string& file, std::vector<std::string>& notes);

// The variables in .deepspeed_env, or in the file that DS_ENV_FILE names, first in `home`, then in
// the current folder, whose values win. Throws Error(kNotFound) if DS_ENV_FILE's is in neither.
Exports read_env_files(const std::string& home, const std::string& named, std::vector<std::string>& notes);

// --env NAME=VALUE, or NAME for this environment's value (`environment`: "NAME=value"). Throws Error(kArgument).
std::pair<std::string, std::string> export_of(const std::string& option, const std::vector<std::string>& environment);

// `environment` with the exports added. Throws Error(kArgument) for a variable set for each rank.
std::vector<std::string> with_exports(const std::vector<std::string>& environment, const Exports& exports);

}  // namespace gannet::launch
