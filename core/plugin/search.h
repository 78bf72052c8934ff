// Finds plugin files. Searches the config's paths, GANNET_PLUGIN_PATH, the folder next to the core
// library and the install prefix, in this order; never the current directory, unless one of the
// user's paths names it.
#pragma once

#include <string>
#include <vector>

namespace gannet::plugin {

struct SearchResult {
  std::vector<std::string> places;       // "/opt/plugins (GANNET_PLUGIN_PATH)", including places that do not exist
  std::vector<std::string> files;        // absolute paths with links resolved, in the order of the search, without duplicates
  std::vector<std::string> ways;         // for each file, the path by which it was found, links included
  std::vector<std::string> own_folders;  // the folders of Gannet's own plugins
};

// Throws Error(kPlugin) if one of the config's paths does not exist: the user asked for it
// explicitly.
SearchResult search(const std::vector<std::string>& explicit_paths);

}  // namespace gannet::plugin
