// GPUs: NVIDIA's, and AMD's where the file is compiled for HIP (accelerators/rocm). The constructor
// checks the driver, counts the devices, and loads the half of LibTorch for such devices into the
// process. A LibTorch for ROCm calls its devices CUDA devices.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Stream.h>

#include <algorithm>
#include <cstring>
#include <gannet/sdk_accelerator.hpp>

#include "queue.h"
#include "runtime.h"
#include "torch_half.h"
#include "vendor.h"

namespace gannet::accelerators {
namespace {

using sdk::Failure;

// Counts the GPUs; throws Failure if the machine has no usable one. The driver library is checked first,
// because without it the runtime only reports that the driver version is insufficient.
uint32_t count_devices() {
  if (!vendor::has_driver())
    throw Failure(GANNET_UNAVAILABLE, "no " + std::string(vendor::kDriver) + ": " + vendor::kDriverFile +
                                          " was not found; install the driver" + vendor::remedy());
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
    const char* visible = std::getenv(vendor::kVisibleDevices);  // "auto" does not warn if the user hides the devices
    throw Failure(visible ? GANNET_UNAVAILABLE : GANNET_UNSUPPORTED,
                  "the " + std::string(vendor::kDriver) + " shows no device" +
                      (visible ? " (" + std::string(vendor::kVisibleDevices) + " is '" + visible + "')" : std::string()) +
                      "; look at `" + vendor::kTool + "`" + vendor::remedy());
  }
  if (status != cudaSuccess)
    throw Failure(GANNET_UNSUPPORTED, "the " + std::string(vendor::kDriver) + " does not serve " + vendor::kApi + " " +
                                          vendor::runtime_version() + ": " + cudaGetErrorString(status) + "; look at `" +
                                          vendor::kTool + "` and update the driver" + vendor::remedy());
  return static_cast<uint32_t>(count);
}

int attribute(cudaDeviceAttr which, uint32_t device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, static_cast<int>(device)), "asking for a property of " + vendor::device(device));
  return value;
}

class Gpu : public sdk::AcceleratorBase {
 public:
  static constexpr std::array<gannet_param_spec, 0> kParams{};
  static constexpr int32_t kPriority = vendor::kPriority;

  Gpu(const gannet_host& host, const sdk::Params& params) : AcceleratorBase(host, params), count_(count_devices()) {
    open_torch_half();
    capabilities_ = GANNET_ACCELERATOR_FP16 | GANNET_ACCELERATOR_BF16 | GANNET_ACCELERATOR_PINNED_MEMORY |
                    GANNET_ACCELERATOR_STREAMS | GANNET_ACCELERATOR_SEPARATE_MEMORY;
    for (uint32_t device = 0; device < count_; ++device)
      if (attribute(cudaDevAttrComputeCapabilityMajor, device) < vendor::kFirstWithBfloat16)
        capabilities_ &= ~uint64_t{GANNET_ACCELERATOR_BF16};
  }

  uint64_t capabilities() const { return capabilities_; }
  uint32_t device_count() const { return count_; }

  void device_info(uint32_t device, gannet_device_info& info) const {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, static_cast<int>(device)),
          "asking for the properties of " + vendor::device(device));
    info.torch_device_type = static_cast<int32_t>(c10::DeviceType::CUDA);
    info.compute_major = static_cast<uint32_t>(properties.major);
    info.compute_minor = static_cast<uint32_t>(properties.minor);
    info.memory_bytes = properties.totalGlobalMem;
    info.free_bytes = free_bytes(device);
    static_assert(sizeof(properties.name) >= sizeof(info.name));
    std::memcpy(info.name, properties.name, sizeof(info.name) - 1);
    info.name[sizeof(info.name) - 1] = 0;
  }

  void set_device(uint32_t device) { guard().setDevice(device_of(device)); }
  void synchronize(uint32_t device) { guard().synchronizeDevice(device_of(device).index()); }

  void* native_stream(uint32_t device, int64_t stream_id) {
    try {
      void* const handle = c10::Stream(c10::Stream::UNSAFE, device_of(device), stream_id).native_handle();
      return handle ? handle : cudaStreamLegacy;  // LibTorch computes on the default stream, whose handle is null
    } catch (const std::exception& error) {
      log(GANNET_LOG_ERROR, vendor::device(device) + " has no stream " + std::to_string(stream_id) + ": " + error.what());
      return nullptr;
    }
  }

  const char* default_comm() const { return "nccl"; }

  using Queue = GpuQueue;
  using Event = GpuEvent;
  std::unique_ptr<Queue> make_queue(uint32_t device, const char* name) { return std::make_unique<Queue>(*this, device, name); }
  void pin(void* address, uint64_t bytes) { pin_memory(address, bytes); }
  void unpin(void* address) { unpin_memory(address); }

 private:
  // Returns 0 if the device has no context, because the query would create one (a few hundred
  // megabytes) on every device that a rank inspects.
  static uint64_t free_bytes(uint32_t device) {
    if (!at::detail::getCUDAHooks().hasPrimaryContext(static_cast<c10::DeviceIndex>(device))) return 0;
    const DeviceScope current(device);
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for the free memory of " + vendor::device(device));
    return free;
  }

  uint32_t count_;
  uint64_t capabilities_ = 0;
};

}  // namespace
}  // namespace gannet::accelerators

GANNET_PLUGINS("accelerator/" GANNET_GPU, GANNET_TIER_PINNED,
               gannet::sdk::accelerator<gannet::accelerators::Gpu>(GANNET_GPU, GANNET_TIER_PINNED, GANNET_FINGERPRINT, "0.1.0",
                                                                   gannet::accelerators::vendor::kAbout))
