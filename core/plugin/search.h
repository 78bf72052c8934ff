// Where plugins are looked for, in order: the config's paths, GANNET_PLUGIN_PATH, beside the core library, the install
// prefix. Never the current directory, unless a path of the user's says so.
#pragma once

#include <string>
#include <vector>

namespace gannet::plugin {

struct SearchResult {
  std::vector<std::string> places;       // "/opt/plugins (GANNET_PLUGIN_PATH)", also those that do not exist
  std::vector<std::string> files;        // absolute, without links, in search order, each once
  std::vector<std::string> ways;         // for each of them the path by which it was found, links and all
  std::vector<std::string> own_folders;  // of Gannet's own plugins
};

// Throws Error(kPlugin) when one of the config's paths does not exist: the user asked for that very file.
SearchResult search(const std::vector<std::string>& explicit_paths);

}  // namespace gannet::plugin
