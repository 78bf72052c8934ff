#pragma once

namespace gannet::accelerators::checked {

// Registers the device `checked` as LibTorch's PrivateUse1, once per process; throws sdk::Failure
// if LibTorch's CUDA device is registered. Call before the first backward. Also registers operators
//   gannet_checked::counters() -> Dict(str, int)     Checker::figures, for tests
//   gannet_checked::reset() -> ()
void register_with_torch();

}  // namespace gannet::accelerators::checked
