// Explains LibTorch's errors about mixed dtypes, if the config chose one of them, and about tensors
// on two devices.
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

// For use within a catch block only. If the config has 16-bit parameters and an operator rejects
// mixed dtypes, throws an Error(kMismatch) that names the config section. If the parameters are on
// a device and another tensor is not, also throws Error(kMismatch). Rethrows anything else as
// rethrow_as_ours() does.
[[noreturn]] void rethrow_of_operators(const RankContext& context, const torch::nn::Module& module, const char* call);

}  // namespace gannet
