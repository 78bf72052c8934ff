// Requirements on every accelerator, tested on each one whose hardware is present.
#include "device/accelerator.h"

#include <gmock/gmock.h>

#include "plugin/support.h"

namespace gannet {
namespace {

using testing::HasSubstr;

class EveryAccelerator : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto* found = registry_.find(GANNET_KIND_ACCELERATOR, GetParam());
    if (!found) GTEST_SKIP() << "not built here";
    try {
      accelerator_.emplace(*found, plugin::parse_params(*found, {}, {}), host_);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
      GTEST_SKIP() << error.what();
    }
  }
  plugin::Registry registry_{{}};
  Host host_;
  std::optional<Accelerator> accelerator_;
};

TEST_P(EveryAccelerator, HasDevicesWithANameAndMemory) {
  ASSERT_GE(accelerator_->device_count(), 1u);
  for (uint32_t i = 0; i < accelerator_->device_count(); ++i) {
    const auto device = accelerator_->device(i);
    EXPECT_NE(device.name, "");
    EXPECT_GT(device.memory_bytes, 0u);
    EXPECT_GT(device.free_bytes, 0u);
    EXPECT_LE(device.free_bytes, device.memory_bytes);
    EXPECT_GE(device.torch_device_type, 0);
    EXPECT_NO_THROW(accelerator_->set_device(i));
    EXPECT_NO_THROW(accelerator_->synchronize(i));
  }
}

TEST_P(EveryAccelerator, RefusesADeviceThatIsNotThere) {
  const auto error = test::error_of([&] { accelerator_->device(accelerator_->device_count()); });
  EXPECT_EQ(error.code(), ErrorCode::kArgument);
  EXPECT_THAT(error.message(), HasSubstr("there is no device " + std::to_string(accelerator_->device_count())));
}

TEST_P(EveryAccelerator, NamesACommForSeveralProcesses) { EXPECT_NE(accelerator_->default_comm(), ""); }

INSTANTIATE_TEST_SUITE_P(Plugins, EveryAccelerator, testing::Values("cpu", "fake", "cuda"),
                         [](const auto& info) { return info.param; });

TEST(CpuAccelerator, IsOneDeviceWithoutStreams) {
  plugin::Registry registry({});
  const auto& cpu = registry.require(GANNET_KIND_ACCELERATOR, "cpu");
  const Host host;
  const Accelerator accelerator(cpu, plugin::parse_params(cpu, {}, {}), host);
  EXPECT_EQ(accelerator.device_count(), 1u);
  EXPECT_EQ(accelerator.device(0).torch_device_type, 0);
  EXPECT_EQ(accelerator.default_comm(), "gloo");
  EXPECT_EQ(accelerator.native_stream(0, 0), nullptr);
  EXPECT_TRUE(accelerator.has(GANNET_ACCELERATOR_BF16));
  EXPECT_FALSE(accelerator.has(GANNET_ACCELERATOR_STREAMS));
}

}  // namespace
}  // namespace gannet
