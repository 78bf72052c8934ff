// LibTorch's CUDA half, joined to a process that was linked to the CPU half alone.
#pragma once

namespace gannet::accelerators {

// Opens libtorch_cuda.so from the folder that LibTorch's CPU half was loaded from: its kernels and its device register as it
// loads. Safe to call again. Throws sdk::Failure(GANNET_UNSUPPORTED), with the loader's words, where it cannot be opened.
void open_torch_half();

}  // namespace gannet::accelerators
