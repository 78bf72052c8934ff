// Loads LibTorch's CUDA library into a process that is linked only to the CPU library.
#pragma once

namespace gannet::accelerators {

// Opens libtorch_cuda.so from the folder of libtorch_cpu.so; its kernels and device register on
// load. Safe to call again. Throws sdk::Failure(GANNET_UNSUPPORTED) with the loader's message if it
// cannot be opened.
void open_torch_half();

}  // namespace gannet::accelerators
