/// Estimates the memory that training a module takes on each rank, for every ZeRO stage and
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
/// Nothing is started. Without `forward` nothing is allocated beyond the model, and activations are not counted. docs/estimate.md
/// says what is counted.
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
  uint32_t ranks = 0;           ///< 0: those of this run (WORLD_SIZE), else 1
  uint32_t ranks_per_host = 0;  ///< 0: LOCAL_WORLD_SIZE where `ranks` is 0, else all
  /// The loss of one micro-batch of that many samples, made by the module's forward. If it is
  /// given, the bytes that activations keep are measured by layer (gannet/layers.h), for the
  /// settings of the config and for those that keep less. It runs once, or twice if the config's
  /// `recompute` names operators, and no backward follows. Call estimate before initialize.
  std::function<at::Tensor(int64_t samples)> forward{};
};

/// Returns a table. For the config's own row it says whether training fits, or the smallest change
/// with which it would. Throws Error(kConfig) without a config, Error(kArgument) for a module
/// without trained parameters.
std::string estimate(const torch::nn::Module& module, const Config& config, const EstimateOptions& options = {});

}  // namespace gannet
