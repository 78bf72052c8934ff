// Finds plugin files, in order: the config's paths, GANNET_PLUGIN_PATH, beside the core library,
// the install prefix. Never the current directory, unless one of the user's paths names it.
#pragma once

#include <string>
#include <vector>

namespace gannet::plugin {

struct SearchResult {
  std::vector<std::string> places;       // "/opt/plugins (GANNET_PLUGIN_PATH)", including places that do not exist
  std::vector<std::string> files;        // absolute, links resolved, in search order, without duplicates
  std::vector<std::string> ways;         // for each file, the path by which it was found, links included
  std::vector<std::string> own_folders;  // of Gannet's own plugins
};

// Throws Error(kPlugin) if one of the config's paths does not exist: the user asked for that file.
SearchResult search(const std::vector<std::string>& explicit_paths);

}  // namespace gannet::plugin
