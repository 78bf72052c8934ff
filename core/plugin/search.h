// Where plugins are looked for, in order: the config's paths, GANNET_PLUGIN_PATH, beside the core library, the install
// prefix. Never the current directory, unless a path of the user's says so.
#pragma once

#include <string>
#include <vector>

namespace gannet::plugin {

struct SearchResult {
  std::vector<std::string> places;  // "/opt/plugins (GANNET_PLUGIN_PATH)", also those that do not exist
  std::vector<std::string> files;   // absolute, in search order, each once
};

// Throws Error(kPlugin) when one of the config's paths does not exist: the user asked for that very file.
SearchResult search(const std::vector<std::string>& explicit_paths);

}  // namespace gannet::plugin
