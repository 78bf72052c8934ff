// The options of `gannet plugins check`, `bench`, `new` and `trust`.
#pragma once

#include <cstdint>
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
  std::string accelerator;  // a file of the device whose memory a Comm moves; "": it is in the Comm's own file, or the host's
  std::string launched;     // file of the ranks' stores: this process is a rank that a launcher started; "": the kit forks ranks
  int limit_seconds = 0;    // per check; 0: the check's own
  bool json = false;
};

struct BenchOptions {
  std::vector<std::string> files;
  std::vector<std::string> plugins;  // only these, by name; empty: all optimizers of the files
  std::string params;                // JSON text; each optimizer takes those that it declares
  std::string dtype = "fp32";        // or "bf16", "fp16", "fp64"
  uint64_t numel = 1 << 24;
  int rounds = 9;
  double bytes = 0;  // per parameter and step; 0: counted from the states
};

struct NewOptions {
  std::string kind;              // "optimizer"
  std::string name;              // "mine"
  std::string language = "c++";  // or "c99"
  std::string folder;            // "": the name, in the current folder
};

struct TrustOptions {
  std::vector<std::string> files;   // plugins, or folders of them
  std::vector<std::string> remove;  // files or hashes to remove from the list
  bool list = false;                // print the list
  std::string trusted;              // path of the list; "": the user's own
};

}  // namespace gannet::kit
