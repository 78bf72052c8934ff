#include <dlfcn.h>
#include <gannet/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gannet/sdk.hpp>

#include "../../accelerators/cuda/torch_half.h"
#include "device/accelerator.h"
#include "plugin/plugin.h"

namespace gannet::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The error of creating the accelerator, or "" if it was created.
std::string refusal_of(const std::string& name, ErrorCode& code) {
  plugin::Registry registry({});
  const plugin::Plugin& plugin = registry.require(GANNET_KIND_ACCELERATOR, name);
  Host host;
  try {
    Accelerator accelerator(plugin, plugin::parse_params(plugin, {}, [](const std::string&) { return std::string(); }), host);
  } catch (const Error& error) {
    code = error.code();
    return error.message();
  }
  return "";
}

TEST(CudaAccelerator, IsRefusedWithOneClearSentenceWhereNoDriverIs) {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) GTEST_SKIP() << "this machine has an NVIDIA driver";
  ErrorCode code{};
  const std::string refusal = refusal_of("cuda", code);
  EXPECT_EQ(code, ErrorCode::kUnavailable);
  EXPECT_THAT(refusal, AllOf(HasSubstr("no NVIDIA driver: libcuda.so.1 was not found"), HasSubstr("install the driver"),
                             HasSubstr("\"accelerator\": {\"type\": \"cpu\"}"), Not(HasSubstr("\n"))));
}

// The small LibTorch of scripts/setup.sh has the library and not what it needs; one for the CPU has neither.
TEST(CudaAccelerator, ALibTorchWhoseCudaHalfCannotBeOpenedIsNamed) {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) GTEST_SKIP() << "this machine has an NVIDIA driver";
  try {
    accelerators::open_torch_half();
    FAIL() << "it was opened, on a machine without a driver";
  } catch (const sdk::Failure& failure) {
    EXPECT_EQ(failure.status(), GANNET_UNSUPPORTED);
    EXPECT_THAT(failure.what(),
                AllOf(HasSubstr("there is a CUDA device, but LibTorch's CUDA half cannot be opened"),
                      HasSubstr("install a LibTorch with CUDA"), HasSubstr("\"accelerator\": {\"type\": \"cpu\"}")));
  }
}

TEST(CudaAccelerator, BeingRefusedLeavesLibTorchsCudaHalfAlone) {
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) GTEST_SKIP() << "this machine has an NVIDIA driver";
  ErrorCode code{};
  refusal_of("cuda", code);
  EXPECT_EQ(dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD), nullptr);
  EXPECT_EQ(refusal_of("cpu", code), "");  // and the next choice of "auto" works
}

}  // namespace
}  // namespace gannet::test
