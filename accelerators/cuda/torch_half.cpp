#include "torch_half.h"

#include <ATen/Parallel.h>
#include <ATen/cuda/detail/CUDAHooks.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <cstring>
#include <gannet/sdk.hpp>
#include <memory>
#include <typeinfo>

namespace gannet::accelerators {
namespace {

using sdk::Failure;

constexpr const char* kRemedy =
    "; install a LibTorch with CUDA and the NVIDIA libraries it needs (the full PyTorch wheel has them), or set "
    "\"accelerator\": {\"type\": \"cpu\"} in the config";

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
// LibTorch looks for its CUDA library when a device is first queried, and keeps the answer, which
// is a stub if the library was not loaded yet. torch::manual_seed queries the device, and programs
// call it before they create a model, which is before this plugin is loaded. So an existing stub is
// turned into the real hooks. Both classes consist of a single vtable pointer (asserted), and this
// plugin only runs with the LibTorch that it was compiled for (the pinned tier).
void replace_early_stub() {
  static_assert(sizeof(at::CUDAHooksInterface) == sizeof(void*) && sizeof(at::cuda::detail::CUDAHooks) == sizeof(void*),
                "CUDAHooks has members of its own now: see Note [LibTorch's first answer]");
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  if (typeid(hooks) != typeid(at::CUDAHooksInterface)) return;
  const std::unique_ptr<at::CUDAHooksInterface> real = at::CUDAHooksRegistry()->Create("CUDAHooks", at::CUDAHooksArgs{});
  if (real) std::memcpy(const_cast<void*>(static_cast<const void*>(&hooks)), static_cast<const void*>(real.get()), sizeof(void*));
}

}  // namespace

void open_torch_half() {
  const std::string file = torch_folder() + "libtorch_cuda.so";
  // The library is opened with global symbols, because libraries that LibTorch opens later (for
  // linear algebra) resolve against them.
  if (!dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
    const char* reason = dlerror();
    throw Failure(GANNET_UNSUPPORTED, "there is a CUDA device, but LibTorch's CUDA half cannot be opened: " +
                                          std::string(reason ? reason : file) + kRemedy);
  }
  replace_early_stub();
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA) || !at::detail::getCUDAHooks().hasCUDA())
    throw Failure(GANNET_UNSUPPORTED, file + " was opened, but LibTorch still finds no CUDA device" + kRemedy);
}

}  // namespace gannet::accelerators
