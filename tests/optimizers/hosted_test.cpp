// The kernels that CUDA runs, on the host (hosted.h), beside the CPU's loops, which have references of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "optimizers/hosted_cases.h"

namespace gannet::test {
namespace {

class InThreadOrder {
 public:
  explicit InThreadOrder(const char* order) { setenv("GANNET_HOSTED_THREADS", order, 1); }
  ~InThreadOrder() { unsetenv("GANNET_HOSTED_THREADS"); }
};

bool has_fused_multiply_add() { return __builtin_cpu_supports("fma"); }

class Hosted : public testing::TestWithParam<HostedCase> {};

// In one piece and in several, odd sizes, tails, tensors beside one another and apart, every type.
TEST_P(Hosted, TrainsAsTheCpuDoes) {
  const HostedCase& each = GetParam();
  const LoadedPlugin on_cpu("optimizer_" + each.folder, each.type), hosted(hosted_file(each), each.type);
  for (const auto& types : kAllTypes) {
    if (!each.takes(types)) continue;
    TestHost host;
    auto expected = each.group(on_cpu, host, types), found = each.group(hosted, host, types);
    for (GroupCase* group : {expected.get(), found.get()}) {
      group->grad_scale = 0.37;
      for (uint32_t step = 1; step <= 25; ++step) {
        group->random_gradients(step);
        group->step(each.ends(*group, step));
      }
    }
    if (each.is_exact && has_fused_multiply_add()) {
      EXPECT_TRUE(found->same_arrays(*expected)) << types.param << types.grad << types.out;
    } else {
      // The sums' order is another one; what follows from them may be rounded otherwise in every step.
      const double unit = types.param == GANNET_FLOAT64 ? 0x1p-53 : 0x1p-24;
      EXPECT_LT(relative_distance(found->values(), expected->values()), 25 * unit) << types.param << types.grad << types.out;
    }
    EXPECT_GT(relative_distance(found->values(), each.group(hosted, host, types)->values()), 1e-3) << "nothing was trained";
  }
}

TEST_P(Hosted, NoThreadReadsWhatAnotherOneWritesBetweenTwoBarriers) {
  const HostedCase& each = GetParam();
  const LoadedPlugin hosted(hosted_file(each), each.type);
  TestHost host;
  const auto run = [&](const char* order) {
    const InThreadOrder threads(order);
    auto group = each.group(hosted, host, kAllTypes[4]);
    for (uint32_t step = 1; step <= 3; ++step) {
      group->random_gradients(step);
      group->step();
    }
    return group;
  };
  const auto forward = run("forward");
  EXPECT_TRUE(run("backward")->same_result(*forward));
  EXPECT_TRUE(run("alternating")->same_result(*forward));
}

TEST_P(Hosted, WritesNothingBetweenTensors) {
  const HostedCase& each = GetParam();
  const LoadedPlugin hosted(hosted_file(each), each.type);
  TestHost host;
  auto group = each.group(hosted, host, kAllTypes[4]);
  std::vector<bool> is_tensors(group->numel);
  for (const auto& tensor : group->tensors)
    for (uint64_t i = 0; i < tensor.numel; ++i) is_tensors[tensor.offset + i] = true;
  const auto before = group->values();
  const auto for_each_between = [&](const std::function<void(Buffer&, uint64_t)>& body) {
    for (Buffer& state : group->states)
      for (uint64_t i = 0; i < group->numel && state.count() == group->numel; ++i)
        if (!is_tensors[i]) body(state, i);
  };
  for_each_between([](Buffer& state, uint64_t i) { state.set(i, 3); });
  group->random_gradients(4);
  group->step();
  for_each_between([](Buffer& state, uint64_t i) { ASSERT_EQ(state.get(i), 3) << i; });
  for (uint64_t i = 0; i < group->numel; ++i)
    if (!is_tensors[i]) {
      ASSERT_EQ(group->param.get(i), before[i]) << i;
      ASSERT_EQ(group->out.get(i), 0) << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Hosted, testing::ValuesIn(hosted_cases()), [](const auto& each) { return each.param.name; });

// The products' tiles are 64 by 64 and 16 deep, sums of the depth 256 terms.
TEST(HostedMuon, EveryShapeIsOrthogonalizedAsOnTheCpu) {
  const LoadedPlugin on_cpu("optimizer_muon", "Muon"),
      hosted(GANNET_BINARY_DIR "/tests/plugins/gannet_test_hosted_muon.so", "Muon");
  const std::vector<std::vector<int64_t>> shapes = {{1, 1},   {1, 50},  {50, 1},   {64, 64}, {65, 63},   {63, 129},   {128, 64},
                                                    {3, 700}, {700, 3}, {17, 257}, {97, 97}, {2, 70, 5}, {5, 4, 3, 2}};
  for (const auto& shape : shapes)
    for (const char* method : {"gram", "standard"}) {
      TestHost host;
      GroupCase expected(on_cpu, Dict{{"ns_method", method}}, host, kAllTypes[0], {{"weight", shape}});
      GroupCase found(hosted, Dict{{"ns_method", method}}, host, kAllTypes[0], {{"weight", shape}});
      for (GroupCase* group : {&expected, &found}) {
        group->random_gradients(7);
        group->step();
      }
      const bool is_near = relative_distance(found.values(), expected.values()) < 25 * 0x1p-24;
      EXPECT_TRUE(has_fused_multiply_add() ? found.same_arrays(expected) : is_near)
          << shape[0] << " by " << found.numel / static_cast<uint64_t>(shape[0]) << method;
    }
}

}  // namespace
}  // namespace gannet::test
