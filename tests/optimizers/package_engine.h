// The steps of package_case.h trained by an engine: over whole tensors of a model, whose sums are the model's.
#pragma once

#include <algorithm>
#include <ranges>

#include "optimizers/given.h"
#include "optimizers/package_case.h"

namespace gannet::test {

struct PackageEngine {
  // `more`: keys of the config's "optimizer" beside its type and params, as "param_groups".
  PackageEngine(const char* type, const ExpectedSteps& expected, const Dict& more = {})
      : expected(expected), given(kShapes, optimizer(type, expected, more)), lr(given.engine->get_lr().front()) {
    torch::NoGradGuard no_grad;
    uint64_t i = 0;
    for (auto& p : given.module->given) p.copy_(filled(p, i, package_first_value));
  }
  void step() {
    ++steps;
    uint64_t i = 0;
    for (size_t t = 0; t < kShapes.size(); ++t)
      given.module->gradients[t] =
          filled(given.module->given[t], i, [&](uint64_t element) { return package_gradient(steps, element); });
    if (expected.warmup > 0) given.engine->set_lr(lr * std::min(1.0, (static_cast<double>(steps) - 1) / expected.warmup));
    given.engine->backward(given.engine->forward(at::Tensor()));
    given.engine->step();
  }
  void train() {
    while (steps < kPackageSteps) step();
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (const at::Tensor& value : given.values())
      for (const at::Tensor flat = value.flatten(); const int64_t i : std::views::iota(int64_t{0}, flat.numel()))
        all.push_back(flat[i].item<double>());
    return all;
  }

  static inline const std::vector<std::vector<int64_t>> kShapes = {{3, 4}, {5}, {2, 1, 3}};
  const ExpectedSteps& expected;
  Given given;
  double lr;  // the configured one
  uint64_t steps = 0;

 private:
  static Dict optimizer(const char* type, const ExpectedSteps& expected, const Dict& more) {
    Dict all{{"type", type}, {"params", config::parse_value(expected.params)}};
    for (const auto& [key, value] : more.entries()) all[key] = value;
    return all;
  }
  // A tensor like `like` of value(i) for its elements; `i` counts over tensors.
  template <class Value>
  static at::Tensor filled(const at::Tensor& like, uint64_t& i, Value&& value) {
    std::vector<float> numbers;
    for (int64_t n = 0; n < like.numel(); ++n) numbers.push_back(static_cast<float>(value(i++)));
    return torch::tensor(numbers).reshape(like.sizes());
  }
};

}  // namespace gannet::test
