/// Will it fit? What training a module takes on each rank, for every ZeRO stage and offload, and what this machine has.
///
///   auto arguments = gannet::take_config_arguments(argc, argv);          // knows --estimate and --estimate=RANKS
///   auto model = std::make_shared<Gpt>(options);
///   if (arguments.estimate) {
///     std::cout << gannet::estimate(*model, arguments.whole_config(), {.ranks = *arguments.estimate});
///     return 0;
///   }
///
/// Nothing is started and nothing is allocated beyond the model. docs/estimate.md says what is counted.
#pragma once

#include <gannet/config.h>

#include <cstdint>
#include <string>

namespace torch::nn {
class Module;
}

namespace gannet {

struct EstimateOptions {
  uint32_t ranks = 0;           ///< 0: those of this run (WORLD_SIZE), else 1
  uint32_t ranks_per_host = 0;  ///< 0: LOCAL_WORLD_SIZE where `ranks` is 0, else all
};

/// A table, and for the config's own row whether it fits or the smallest change with which it would. Throws Error(kConfig)
/// without a config, Error(kArgument) for a module without parameters that are trained.
std::string estimate(const torch::nn::Module& module, const Config& config, const EstimateOptions& options = {});

}  // namespace gannet
