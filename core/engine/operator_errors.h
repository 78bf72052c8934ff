// LibTorch's complaints about tensors of two dtypes, where the config chose one of them, and of two devices.
//
//   } catch (...) {
//     rethrow_of_operators(context, *module, "forward");
//   }
#pragma once

#include "params/rank_context.h"

namespace torch::nn {
class Module;
}

namespace gannet {

// Within a handler only. Where the config gave the parameters 16 bits and an operator refuses a mixture with them:
// Error(kMismatch) that says which section of the config it was; where they are on a device and something is not:
// Error(kMismatch) too. Anything else leaves as rethrow_as_ours() has it.
[[noreturn]] void rethrow_of_operators(const RankContext& context, const torch::nn::Module& module, const char* call);

}  // namespace gannet
