// Shared by the tests of the device `checked` itself.
#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "accelerators/checked.h"
#include "accelerators/opened.h"

namespace gannet::test {

// Opened again for each test, as for a second engine; the device is registered with LibTorch once.
class CheckedDevice : public testing::Test {
 protected:
  void SetUp() override {
    checked->set_device(0);
    checked->synchronize(0);
    reset_counters();
  }
  void TearDown() override { EXPECT_EQ(counters().at("races"), races_expected); }
  c10::Stream stream_of_pool() { return c10::impl::VirtualGuardImpl(kChecked.type()).getStreamFromGlobalPool(kChecked); }
  void* handle(const c10::Stream& stream) { return checked->native_stream(0, stream.id()); }
  void* default_stream() { return checked->native_stream(0, 0); }

  Opened checked{"checked"};
  int64_t races_expected = 0;
};

}  // namespace gannet::test
