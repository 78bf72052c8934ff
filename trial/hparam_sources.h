// Collects the hyperparameters of a trial from a file, the command line and the program's defaults.
#pragma once

#include <gannet/hparams.h>

#include <string>
#include <vector>

namespace gannet::trials {

struct HparamSources {
  Dict defaults = {};                      // the program's defaults
  std::string file = {};                   // a JSON or YAML file; "" for none
  std::vector<std::string> assigned = {};  // assignments such as "lr=1e-3" from the command line
  std::string deepspeed_config = {};       // the value of --deepspeed_config
  Dict config_overrides = {};              // the values of --set
};

struct CollectedHparams {
  Hparams hparams;
  std::vector<std::string> given;  // names given on the command line
};

// Throws an Error(kArgument) that lists every unknown name, wrong type and contradiction; Error(kNotFound) without the file.
CollectedHparams collect_hparams(const HparamSources& sources);

}  // namespace gannet::trials
