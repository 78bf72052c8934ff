// The options of `gannet plugins check`, `new` and `trust`.
#pragma once

#include <string>
#include <vector>

namespace gannet::kit {

struct CheckOptions {
  std::string file;
  std::string plugin;               // the name of one plugin in the file; "": all
  std::vector<std::string> checks;  // only these; empty: all
  std::string params;               // JSON text
  std::string exclusions;           // a file; "": none
  std::string reference;            // another plugin's file; "": none
  std::string reference_params;
  double tolerance = 1e-6;
  int limit_seconds = 0;  // for each check; 0: its own
  bool json = false;
};

struct NewOptions {
  std::string kind;              // "optimizer"
  std::string name;              // "mine"
  std::string language = "c++";  // or "c99"
  std::string folder;            // "": the name, in the current folder
};

struct TrustOptions {
  std::vector<std::string> files;   // plugins, or folders of them
  std::vector<std::string> remove;  // files or hashes to take out of the list
  bool list = false;                // print the list
  std::string trusted;              // "": the user's own
};

}  // namespace gannet::kit
