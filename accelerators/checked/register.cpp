#include "register.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <gannet/sdk.hpp>
#include <mutex>

#include "checker.h"
#include "device_guard.h"
#include "hooks.h"
#include "kernels.h"
#include "memory.h"

namespace gannet::accelerators::checked {
namespace {

c10::Dict<std::string, int64_t> counters() {
  c10::Dict<std::string, int64_t> figures;
  for (const auto& [name, value] : Checker::get().figures()) figures.insert(name, value);
  return figures;
}

void reset() { Checker::get().reset(); }

void register_operators() {
  static auto* const library = new torch::Library(torch::Library::DEF, "gannet_checked", std::nullopt, __FILE__, __LINE__);
  library->def("counters() -> Dict(str, int)", TORCH_FN(counters));
  library->def("reset() -> ()", TORCH_FN(reset));
}

}  // namespace

// The order of these calls matters: hooks cannot be registered before the backend has a name, and
// code that uses the device needs its guard and its allocator.
void register_with_torch() {
  static std::once_flag once;
  std::call_once(once, [] {
    // LibTorch supports pinned memory, generators and backward threads for only one device besides
    // the CPU.
    if (c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA))
      throw sdk::Failure(GANNET_UNSUPPORTED,
                         "LibTorch's CUDA half is in this process, and LibTorch knows one device beside the CPU: use the "
                         "accelerator 'checked' in a process without it");
    register_device_guard();
    c10::SetAllocator(c10::DeviceType::PrivateUse1, device_allocator());
    c10::register_privateuse1_backend("checked");
    register_hooks();
    register_kernels();
    register_operators();
    catch_host_accesses();
  });
}

}  // namespace gannet::accelerators::checked
