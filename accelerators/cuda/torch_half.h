// Loads LibTorch's half for GPUs into a process that is linked only to the CPU's half.
#pragma once

namespace gannet::accelerators {

// Opens libtorch_cuda.so (ROCm: libtorch_hip.so) from the folder of libtorch_cpu.so; its kernels and its device are
// registered when it is loaded. It is safe to call this again. Throws
// sdk::Failure(GANNET_UNSUPPORTED) if the library cannot be opened, or if LibTorch then finds no CUDA device.
void open_torch_half();

}  // namespace gannet::accelerators
