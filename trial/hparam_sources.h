// Collects the hyperparameters of a trial from a file, the command line and the program's defaults.
#pragma once

#include <gannet/hparams.h>

#include <string>
#include <vector>

namespace gannet::trials {

struct HparamSources {
  Dict defaults = {};                      // of the program
  std::string file = {};                   // JSON or YAML; "": none
  std::vector<std::string> assigned = {};  // "lr=1e-3", of the command line
  std::string deepspeed_config = {};       // of --deepspeed_config
  Dict config_overrides = {};              // of --set
};

struct CollectedHparams {
  Hparams hparams;
  std::vector<std::string> given;  // by the command line
};

// Throws an Error(kArgument) that lists every unknown name, wrong type and contradiction.
CollectedHparams collect_hparams(const HparamSources& sources);

}  // namespace gannet::trials
