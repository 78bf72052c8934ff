// The accelerator `rocm`, its sources compiled with the declarations of ROCm 6 in include/, on
// stand-ins for AMD's runtime and for LibTorch's half: all but the devices themselves.
#include <ATen/Context.h>
#include <dlfcn.h>
#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <gannet/sdk.hpp>
#include <numeric>

#include "device/accelerator.h"
#include "device/queue.h"
#include "plugin/handshake.h"
#include "plugin/note.h"
#include "plugin/plugin.h"
#include "plugin/support.h"

namespace gannet::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Rocm : public testing::Test {
 protected:
  // The plugin compiled for the stand-ins; the search finds the one for the installed ROCm, if any.
  const plugin::Plugin& compiled_for_stand_ins() {
    return *registry_.open_file(GANNET_BINARY_DIR "/tests/rocm/gannet_accelerator_rocm.so").at(0);
  }
  std::unique_ptr<Accelerator> open() {
    const plugin::Plugin& plugin = compiled_for_stand_ins();
    return std::make_unique<Accelerator>(
        plugin, plugin::parse_params(plugin, {}, [](const std::string&) { return std::string(); }), host_);
  }

  plugin::Registry registry_{{}};
  Host host_;
};

// The first test, since LibTorch's half stays in the process.
TEST_F(Rocm, ADriverWithoutADeviceIsNamed) {
  setenv("GANNET_TEST_HIP_DEVICES", "0", 1);
  setenv("HIP_VISIBLE_DEVICES", "7", 1);
  EXPECT_THAT(error_of([&] { open(); }).message(),
              AllOf(HasSubstr("the AMD driver shows no device (HIP_VISIBLE_DEVICES is '7'); look at `rocm-smi`"),
                    HasSubstr("\"accelerator\": {\"type\": \"cpu\"}"), Not(HasSubstr("\n"))));
  unsetenv("HIP_VISIBLE_DEVICES");
  unsetenv("GANNET_TEST_HIP_DEVICES");
  EXPECT_EQ(dlopen("libtorch_hip.so", RTLD_LAZY | RTLD_NOLOAD), nullptr);
}

TEST_F(Rocm, JoinsLibTorchsHalfThoughLibTorchWasAskedForADeviceBefore) {
  EXPECT_FALSE(at::hasCUDA());  // LibTorch keeps this answer; see Note [LibTorch's first answer]
  const auto rocm = open();
  EXPECT_TRUE(at::hasCUDA());
  EXPECT_EQ(rocm->name(), "rocm");
  EXPECT_EQ(rocm->default_comm(), "nccl");
  EXPECT_EQ(rocm->device_count(), 2u);
  EXPECT_TRUE(rocm->has(GANNET_ACCELERATOR_BF16));
  const Accelerator::Device device = rocm->device(1);
  EXPECT_EQ(device.name, "stand-in for an AMD GPU");
  EXPECT_EQ(device.torch_device_type, static_cast<int>(c10::DeviceType::CUDA));  // as LibTorch for ROCm has it
  EXPECT_EQ(device.compute_major, 9u);
  EXPECT_EQ(device.memory_bytes, uint64_t{192} << 30);
  EXPECT_EQ(device.free_bytes, uint64_t{190} << 30);
  EXPECT_NE(rocm->native_stream(0, 0), nullptr);  // the default stream's handle is null, which would mean that there are none
}

TEST_F(Rocm, CopiesInAQueueAndWaitsForEvents) {
  const auto rocm = open();
  Queue in = rocm->make_queue("in", 1), out = rocm->make_queue("out", 1);
  std::vector<float> there(1000), first(1000), back(1000);
  std::iota(first.begin(), first.end(), 1.0f);
  const Pin pin = rocm->pin(first.data(), first.size() * sizeof(float));
  in.copy(there.data(), first.data(), first.size() * sizeof(float));
  auto copied = in.record();
  out.wait(copied);
  out.copy(back.data(), there.data(), first.size() * sizeof(float));
  out.synchronize();
  EXPECT_TRUE(copied.is_over());
  EXPECT_EQ(back, first);
}

TEST_F(Rocm, IsNeverChosenByAutoAndSaysThatItHasNeverRun) {
  const plugin::Plugin& plugin = compiled_for_stand_ins();
  EXPECT_LT(plugin::priority_of(plugin), 0);
  EXPECT_THAT(plugin.descriptor->doc, HasSubstr("never run on an AMD GPU"));
  EXPECT_EQ(plugin.version().substr(0, 2), "0.");
  for (const plugin::Plugin* best : registry_.accelerators_best_first()) EXPECT_NE(best->name(), "rocm");
}

TEST_F(Rocm, TheOneForAnotherVendorsLibTorchIsRefusedByNameAndPassedOverInSilenceByAuto) {
  const std::string vendor = plugin::vendor_of_libtorch();
  if (!vendor.starts_with("cuda=")) GTEST_SKIP() << "LibTorch is for CPUs alone";
  std::string bytes = read_file(GANNET_BINARY_DIR "/tests/rocm/gannet_accelerator_rocm.so");
  const std::string other = "rocm=" + vendor.substr(5);
  bytes.replace(bytes.find(vendor), vendor.size(), other);
  const TemporaryFolder folder;
  write_file(folder / "gannet_accelerator_rocm.so", bytes);
  plugin::Registry registry({{folder.string()}, {folder.string()}});
  {
    const CapturedLog log;
    for (const plugin::Plugin* best : registry.accelerators_best_first()) EXPECT_NE(best->name(), "rocm");
    EXPECT_EQ(log.text(), "");
  }
  const Error error = error_of([&] { registry.require(GANNET_KIND_ACCELERATOR, "rocm"); });
  EXPECT_THAT(error.message(),
              HasSubstr("is built for another LibTorch: for " + other + ", and the one in this process is for " + vendor));
  EXPECT_THAT(error.next_step(), HasSubstr("docs/gpu.md"));
}

}  // namespace
}  // namespace gannet::test
