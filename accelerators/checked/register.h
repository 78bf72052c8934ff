#pragma once

namespace gannet::accelerators::checked {

// Makes LibTorch's PrivateUse1 the device `checked`, once per process; throws sdk::Failure if LibTorch's
// CUDA device is registered. Call it before the first backward. Also registers the operators
//   gannet_checked::counters() -> Dict(str, int)     Checker::figures, for tests
//   gannet_checked::reset() -> ()
void register_with_torch();

}  // namespace gannet::accelerators::checked
