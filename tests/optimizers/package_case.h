// Steps of a published package's optimizer as a table (expected/adan.py and its neighbours), and the same steps of a plugin of
// ours: over three tensors, or over one of all their elements for rules that do not see tensors.
//
//   PackageCase ours(plugin, expected, GANNET_FLOAT64, kPackageTensors);
//   ours.train();
//   EXPECT_LT(relative_distance(ours.group.values(), values_of(expected.in_fp64)), 1e-13);
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "config/parse.h"
#include "optimizers/group_case.h"

namespace gannet::test {

inline constexpr uint64_t kPackageNumel = 23, kPackageSteps = 16;

struct ExpectedSteps {
  const char* params;  // JSON
  int warmup = 0;      // the learning rate of step t is (t - 1) / warmup of the configured one until it is reached
  double in_fp64[kPackageNumel];
  double in_fp32[kPackageNumel] = {};  // all zeros: the package's run in fp32 says nothing
  double slow[kPackageNumel] = {};     // of Lookahead, in fp64
  double d = 0;                        // of Prodigy, in fp64
};

// As in expected/package_steps.py; all of them are exact in fp32.
inline double package_first_value(uint64_t i) { return (static_cast<double>((37 * i) % 23) - 11) / 8; }
inline double package_gradient(uint64_t step, uint64_t i) {
  return (static_cast<double>((7 * step + 5 * i) % 11) - 5 + 4 * (static_cast<double>(i % 3) - 1)) / 4;
}
inline const std::vector<GroupCase::Tensor> kPackageTensors = {{"matrix", {3, 4}}, {"vector", {5}}, {"cube", {2, 1, 3}}};
// The model as one tensor: GroupCase's sums are of tensors, and so these are the model's.
inline const std::vector<GroupCase::Tensor> kPackageModel = {{"model", {kPackageNumel}}};

inline std::vector<double> values_of(const double (&list)[kPackageNumel]) { return {list, list + kPackageNumel}; }
inline std::vector<double> values_of(const Buffer& buffer) {
  std::vector<double> all;
  for (uint64_t i = 0; i < buffer.count(); ++i) all.push_back(buffer.get(i));
  return all;
}
inline bool has_values(const double (&list)[kPackageNumel]) {
  return std::any_of(list, list + kPackageNumel, [](double x) { return x != 0; });
}

// The states that begin as the parameter (GANNET_STATE_FROM_PARAMETER), which GroupCase begins with a constant.
inline void begin_from_parameter(GroupCase& group) {
  for (size_t s = 0; s < group.states.size(); ++s)
    if (group.state_names[s] == "slow" || group.state_names[s] == "p0")
      for (uint64_t i = 0; i < group.numel; ++i) group.states[s].set(i, group.param.get(i));
}
// A host that also keeps what is shown as metrics.
struct MetricHost : TestHost {
  std::map<std::string, double> metrics;

  MetricHost() {
    table.metric = [](void* self, const char* name, double value, gannet_error*) -> int32_t {
      static_cast<MetricHost*>(static_cast<TestHost*>(self))->metrics[name] = value;
      return GANNET_OK;
    };
  }
};
inline Types types_of(uint32_t dtype) { return {dtype, dtype, GANNET_DTYPE_NONE}; }

struct PackageCase {
  PackageCase(const LoadedPlugin& plugin, const ExpectedSteps& expected, uint32_t dtype,
              const std::vector<GroupCase::Tensor>& tensors)
      : expected(expected),
        group(plugin, config::parse_value(expected.params).as_dict(), host, types_of(dtype), tensors),
        lr(group.optimizer.params.hyper[0]) {
    for (uint64_t i = 0; i < group.numel; ++i) group.param.set(i, package_first_value(i));
    begin_from_parameter(group);
  }
  void train() {
    for (uint64_t step = 1; step <= kPackageSteps; ++step) {
      for (uint64_t i = 0; i < group.numel; ++i) group.grad.set(i, package_gradient(step, i));
      if (expected.warmup > 0)
        group.optimizer.params.hyper[0] = lr * std::min(1.0, (static_cast<double>(step) - 1) / expected.warmup);
      group.step();
    }
  }
  // Relative 2-norms of the differences to the package after all steps.
  double off_fp64() const { return relative_distance(group.values(), values_of(expected.in_fp64)); }
  double off_fp32() const { return relative_distance(group.values(), values_of(expected.in_fp32)); }

  const ExpectedSteps& expected;
  MetricHost host;
  GroupCase group;
  double lr;  // the configured one
};

// A rule on one element in T, written as its paper has it. `state` is what it keeps, from zeros; a rule that sees tensors has
// `begin_tensor`.
template <class T>
struct PackageElement {
  T p = 0;
  T state[4] = {};
};
template <class T>
using PackageRule = std::function<void(PackageElement<T>&, T gradient, uint64_t step)>;

// Gradients that pull each element to a point of its own, with noise.
inline void set_pulling_gradients(GroupCase& group, std::mt19937& random) {
  std::normal_distribution<double> normal;
  for (uint64_t i = 0; i < group.numel; ++i)
    group.grad.set(i, 0.3 * (group.param.get(i) - std::sin(static_cast<double>(i))) + 0.1 * normal(random));
}

// The relative 2-norm of ours - a reference in T after `steps`, both fed the gradients of ours.
template <class T>
double distance_to_rule(GroupCase& group, const PackageRule<T>& rule, uint64_t steps) {
  begin_from_parameter(group);
  std::vector<PackageElement<T>> elements(group.numel);
  for (uint64_t i = 0; i < group.numel; ++i) elements[i].p = static_cast<T>(group.param.get(i));
  std::mt19937 random(11);
  for (uint64_t step = 1; step <= steps; ++step) {
    set_pulling_gradients(group, random);
    for (uint64_t i = 0; i < group.numel; ++i) rule(elements[i], static_cast<T>(group.grad.get(i)), step);
    group.step();
  }
  std::vector<double> expected;
  for (const auto& element : elements) expected.push_back(double{element.p});
  return relative_distance(group.values(), expected);
}

// What the plugin says to params that it refuses by itself; "created" if it takes them.
inline std::string package_refusal(const LoadedPlugin& plugin, const Dict& params) {
  TestHost host;
  try {
    OptimizerUnderTest optimizer(plugin, params, host);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "created";
}

}  // namespace gannet::test
