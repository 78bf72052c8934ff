#include "torch_half.h"

#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#ifndef __HIP_PLATFORM_AMD__
#include <ATen/cuda/detail/CUDAHooks.h>
#endif

#include <cstring>
#include <gannet/sdk.hpp>
#include <memory>
#include <typeinfo>

#include "vendor.h"

namespace gannet::accelerators {
namespace {

using sdk::Failure;

// Returns the folder of the libtorch_cpu.so that is loaded in this process.
std::string torch_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) || !info.dli_fname)
    throw Failure(GANNET_INTERNAL, "the folder of LibTorch's CPU half could not be found");
  const std::string file = info.dli_fname;
  return file.substr(0, file.rfind('/') + 1);
}

// Note [LibTorch's first answer]
//
// LibTorch looks for its half for GPUs when a device is first queried, and keeps the answer, which
// is a stub if the library was not loaded yet. torch::manual_seed queries the device, and programs
// call it before they create a model, which is before this plugin is loaded. So an existing stub is
// turned into the real hooks. Both classes consist of a single vtable pointer (asserted), and this
// plugin only runs with the LibTorch that it was compiled for (the pinned tier). A LibTorch for ROCm
// registers its hooks under CUDA's name; their class has other headers, so it is not asserted.
void replace_early_stub() {
  static_assert(sizeof(at::CUDAHooksInterface) == sizeof(void*), "CUDAHooks has members: see Note [LibTorch's first answer]");
#ifndef __HIP_PLATFORM_AMD__
  static_assert(sizeof(at::cuda::detail::CUDAHooks) == sizeof(void*),
                "CUDAHooks has members: see Note [LibTorch's first answer]");
#endif
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  if (typeid(hooks) != typeid(at::CUDAHooksInterface)) return;
  const std::unique_ptr<at::CUDAHooksInterface> real = at::CUDAHooksRegistry()->Create("CUDAHooks", at::CUDAHooksArgs{});
  if (real) std::memcpy(const_cast<void*>(static_cast<const void*>(&hooks)), static_cast<const void*>(real.get()), sizeof(void*));
}

}  // namespace

void open_torch_half() {
  const std::string file = torch_folder() + vendor::kTorchHalf;
  // The library is opened with global symbols, because libraries that LibTorch opens later (for
  // linear algebra) resolve against them.
  if (!dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
    const char* reason = dlerror();
    throw Failure(GANNET_UNSUPPORTED, "there is a " + std::string(vendor::kApi) + " device, but LibTorch's " + vendor::kHalf +
                                          " half cannot be opened: " + (reason ? reason : file) + "; " + vendor::kTorch +
                                          vendor::remedy());
  }
  replace_early_stub();
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA) || !at::detail::getCUDAHooks().hasCUDA())
    throw Failure(GANNET_UNSUPPORTED,
                  file + " was opened, but LibTorch still finds no device; " + vendor::kTorch + vendor::remedy());
}

}  // namespace gannet::accelerators
