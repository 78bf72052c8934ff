// Tests that run on each accelerator, with queues of its own (fake, cuda) and without (cpu). Only cuda may be missing, the plugin
// or the hardware, and is then skipped. `checked` has a program of its own (GANNET_TEST_CHECKED): LibTorch knows one device
// beside the CPU in a process.
#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <optional>
#include <string>

#include "accelerators/opened.h"

namespace gannet::test {

class EveryAccelerator : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const bool is_shaken = GetParam() == "shaken_fake";  // copies begin late, each at another time
    const std::string name = is_shaken ? "fake" : GetParam();
    const bool may_be_missing = name == "cuda";
    if (may_be_missing && !plugin::Registry({}).find(GANNET_KIND_ACCELERATOR, name)) GTEST_SKIP() << "not built here";
    try {
      opened_.emplace(name, is_shaken ? Dict{{"delay_us", 2000}} : Dict());
    } catch (const Error& error) {
      ASSERT_TRUE(may_be_missing) << error.what();
      ASSERT_THAT(error.code(), testing::AnyOf(ErrorCode::kUnavailable, ErrorCode::kUnsupported)) << error.what();
      GTEST_SKIP() << error.what();
    }
    opened().set_device(0);
  }
  Accelerator& opened() { return opened_->accelerator; }
  at::Device device() { return at::Device(static_cast<c10::DeviceType>(opened().device(0).torch_device_type)); }
  void* compute_stream() {
    if (!opened().has(GANNET_ACCELERATOR_STREAMS)) return nullptr;
    return opened().native_stream(0, c10::impl::VirtualGuardImpl(device().type()).getStream(at::Device(device().type(), 0)).id());
  }

 private:
  std::optional<Opened> opened_;
};

#ifdef GANNET_TEST_CHECKED
inline const auto kEveryAccelerator = testing::Values("checked");
#else
inline const auto kEveryAccelerator = testing::Values("cpu", "fake", "shaken_fake", "cuda");
#endif

}  // namespace gannet::test
