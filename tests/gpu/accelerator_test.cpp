#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include "gpu/gpu_test.h"

namespace gannet::test {
namespace {

using CudaAcceleratorOnGpu = GpuTest;

const at::TensorOptions kOnGpu = at::TensorOptions().device(at::Device(at::kCUDA, 0));

TEST_F(CudaAcceleratorOnGpu, TellsDevicesAndWhatTheyCanDo) {
  ASSERT_GE(accelerator().device_count(), 1u);
  const auto device = accelerator().device(0);
  EXPECT_FALSE(device.name.empty());
  EXPECT_EQ(device.torch_device_type, static_cast<int>(c10::DeviceType::CUDA));
  EXPECT_GT(device.memory_bytes, uint64_t{1} << 30);
  EXPECT_GE(device.compute_major, 7u);
  EXPECT_TRUE(accelerator().has(GANNET_ACCELERATOR_STREAMS));
  EXPECT_EQ(accelerator().has(GANNET_ACCELERATOR_BF16), device.compute_major >= 8);
  EXPECT_THROW(accelerator().device(accelerator().device_count()), Error);
}

TEST_F(CudaAcceleratorOnGpu, FreeMemoryIsToldOnceTheDeviceIsInUse) {
  const at::Tensor memory = at::empty({1 << 20}, kOnGpu);
  const auto device = accelerator().device(0);
  EXPECT_GT(device.free_bytes, 0u);
  EXPECT_LT(device.free_bytes, device.memory_bytes);
}

// The program asked LibTorch for a device before the plugin was opened (see Gpu), and gets CUDA tensors all the same.
TEST_F(CudaAcceleratorOnGpu, WorksThoughTheProgramSeededBeforeItWasOpened) {
  EXPECT_TRUE(at::globalContext().hasCUDA());
  at::manual_seed(2);
  EXPECT_EQ(at::ones({1000}, kOnGpu).sum().item<double>(), 1000);
}

TEST_F(CudaAcceleratorOnGpu, MatrixProductsRun) {
  const at::Tensor a = at::ones({64, 64}, kOnGpu);
  EXPECT_EQ(a.mm(a).sum().item<double>(), 64.0 * 64 * 64);
}

TEST_F(CudaAcceleratorOnGpu, NativeStreamsAreLibTorchsOwn) {
  const c10::impl::VirtualGuardImpl impl(c10::DeviceType::CUDA);
  const c10::Device device(c10::DeviceType::CUDA, 0);
  EXPECT_EQ(impl.getDefaultStream(device).native_handle(), nullptr) << "null means a device without streams in our contract";
  EXPECT_EQ(accelerator().native_stream(0, 0), reinterpret_cast<void*>(1)) << "cudaStreamLegacy";
  const c10::Stream other = impl.getStreamFromGlobalPool(device);
  EXPECT_NE(accelerator().native_stream(0, other.id()), nullptr);
  EXPECT_EQ(accelerator().native_stream(0, other.id()), other.native_handle());
}

TEST_F(CudaAcceleratorOnGpu, SynchronizeWaitsForEveryStream) {
  const c10::impl::VirtualGuardImpl impl(c10::DeviceType::CUDA);
  const c10::Stream other = impl.getStreamFromGlobalPool(c10::Device(c10::DeviceType::CUDA, 0));
  const c10::Stream before = impl.exchangeStream(other);
  at::Tensor work = at::ones({2048, 2048}, kOnGpu);
  for (int i = 0; i < 50; ++i) work = work.mm(work).clamp(0, 1);
  c10::Event done(c10::DeviceType::CUDA);
  done.record(other);
  impl.exchangeStream(before);
  accelerator().synchronize(0);
  EXPECT_TRUE(done.query());
}

TEST_F(CudaAcceleratorOnGpu, PinnedMemoryIsPinned) {
  EXPECT_TRUE(accelerator().has(GANNET_ACCELERATOR_PINNED_MEMORY));
  EXPECT_TRUE(at::empty({16}, at::TensorOptions().pinned_memory(true)).is_pinned());
}

}  // namespace
}  // namespace gannet::test
