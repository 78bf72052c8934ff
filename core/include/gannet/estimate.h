/// Estimates the memory that training a module needs on each rank, for every ZeRO stage and
/// offload, and compares it with the memory of this machine.
///
///   auto arguments = gannet::take_config_arguments(argc, argv);          // knows --estimate and --estimate=RANKS
///   auto model = std::make_shared<Gpt>(options);
///   if (arguments.estimate) {
///     const auto loss_of = [&](int64_t samples) { return model->forward(ids(samples), targets(samples)); };
///     std::cout << gannet::estimate(*model, arguments.whole_config(), {.ranks = *arguments.estimate, .forward = loss_of});
///     return 0;
///   }
///
/// No training is started. Without `forward` nothing is allocated beyond the model, and activations
/// are not counted. docs/estimate.md lists what is counted.
#pragma once

#include <gannet/config.h>

#include <cstdint>
#include <functional>
#include <string>

namespace at {
class Tensor;
}

namespace torch::nn {
class Module;
}

namespace gannet {

struct EstimateOptions {
  uint32_t ranks = 0;           ///< 0: the number in this run (WORLD_SIZE, or 1 without it)
  uint32_t ranks_per_host = 0;  ///< 0: LOCAL_WORLD_SIZE if `ranks` is 0, otherwise all ranks
  /// Computes the loss of a micro-batch of `samples` samples with the module's forward. If it is
  /// set, the memory that activations keep is measured by layer (gannet/layers.h), for the
  /// settings of the config and for settings that keep less. The function runs once, or twice if
  /// the config's `recompute` names operators, and no backward follows. Call estimate before
  /// initialize.
  std::function<at::Tensor(int64_t samples)> forward{};
};

/// Returns a table. The config's row shows whether training fits or, if not, the smallest change
/// that would make it fit. Throws Error(kConfig) without a config, Error(kArgument) for a module
/// without trained parameters.
std::string estimate(const torch::nn::Module& module, const Config& config, const EstimateOptions& options = {});

}  // namespace gannet
