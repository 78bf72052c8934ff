// Checks a config without running it: the findings that `gannet config check` and `gannet doctor
// --config` print.
//
//   const ConfigCheck check = check_config("ds_config.json", {.world_size = 2});
//   if (check.mistakes.empty()) ...
#pragma once

#include <gannet/error.h>
#include <gannet/value.h>

#include <cstdint>
#include <string>
#include <vector>

#include "config/document.h"
#include "config/settings.h"

namespace gannet::doctor {

struct ConfigCheckOptions {
  int64_t world_size = 0;    // 0: from WORLD_SIZE or the batch sizes
  bool with_plugins = true;  // also open the plugins that the config names, and check their params
  Dict overrides = {};       // from --set
};

struct ConfigCheck {
  int64_t world_size = 1;
  std::vector<Error> mistakes;       // all independent mistakes, those of keys first, then those of plugins
  std::vector<std::string> notices;  // legal, but worth knowing
  bool is_partial = false;           // values were not compared with one another, since some are wrong
};

// Throws if the config cannot be checked because there is no such file, or its text is not JSON.
ConfigCheck check_config(const std::string& file, const ConfigCheckOptions& options);

// The mistakes of the plugins that the document names, and of their params; `found` also receives notices.
void check_plugins(const config::Document& document, const config::Settings& settings, ConfigCheck& found);

// The world size from the options, else from WORLD_SIZE, else implied by the batch sizes.
int64_t world_size_of(const ConfigCheckOptions& options, const config::Document& document);

}  // namespace gannet::doctor
