// Explains LibTorch's errors about tensors of two dtypes, if the config chose one of these, and
// about tensors on two devices.
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

// For use within a handler only. If the config gave the parameters 16 bits and an operator refuses
// a mixture of dtypes, throws Error(kMismatch) that names the section of the config. If the
// parameters are on a device and another tensor is not, also throws Error(kMismatch). Anything else
// is thrown as by rethrow_as_ours().
[[noreturn]] void rethrow_of_operators(const RankContext& context, const torch::nn::Module& module, const char* call);

}  // namespace gannet
