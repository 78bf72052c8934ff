// Stands in for LibTorch's half for ROCm, libtorch_hip.so: like it, registers devices and hooks under
// CUDA's names. It has no operators.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <hip/hip_runtime_api.h>

namespace {

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override {
    int device = 0;
    TORCH_CHECK(hipGetDevice(&device) == hipSuccess);
    return c10::Device(type(), static_cast<c10::DeviceIndex>(device));
  }
  void setDevice(c10::Device device) const override { TORCH_CHECK(hipSetDevice(device.index()) == hipSuccess); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { static_cast<void>(hipSetDevice(device.index())); }
  c10::Stream getStream(c10::Device device) const override { return c10::Stream(c10::Stream::UNSAFE, device, 0); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  void* getStreamNativeHandle(const c10::Stream) const override { return nullptr; }  // the default stream
  c10::DeviceIndex deviceCount() const noexcept override {
    int count = 0;
    return hipGetDeviceCount(&count) == hipSuccess ? static_cast<c10::DeviceIndex>(count) : c10::DeviceIndex{0};
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {}
};

}  // namespace

namespace at {
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool hasROCM() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at

C10_REGISTER_GUARD_IMPL(CUDA, Guard)
