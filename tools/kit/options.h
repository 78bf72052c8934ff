// What `gannet plugins check` is asked for.
#pragma once

#include <string>
#include <vector>

namespace gannet::kit {

struct CheckOptions {
  std::string file;
  std::string plugin;               // the name of one of the file's; "": all
  std::vector<std::string> checks;  // only these; empty: all
  std::string params;               // JSON text
  std::string exclusions;           // a file; "": none
  std::string reference;            // another plugin's file; "": none
  std::string reference_params;
  double tolerance = 1e-6;
  int limit_seconds = 0;  // of each check; 0: its own
  bool json = false;
};

}  // namespace gannet::kit
