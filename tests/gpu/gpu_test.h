// The base of every test here.
#pragma once

#include <gtest/gtest.h>

#include "gpu/device.h"

namespace gannet::test {

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!Gpu::instance().accelerator) GTEST_SKIP() << Gpu::instance().refusal;
  }
  Accelerator& accelerator() { return *Gpu::instance().accelerator; }
};

}  // namespace gannet::test
