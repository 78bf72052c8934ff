// The engine's cost per parameter: a backward that only sets the gradients of a module's many tiny
// tensors, against the same backward without an engine. Reports time, and allocations on the
// engine's thread, for 100, 1,000 and 10,000 tensors.
//
//   hook_bench [--stage 2] [--dtype fp32] [--numel 16] [--rounds 15]
//   gannet run --num_procs 2 hook_bench
//   instructions in the hooks:
//   valgrind --tool=callgrind --toggle-collect='*Reducer::Hook::operator*' hook_bench --rounds 3 --only 1000
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gannet/gannet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/nn/module.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/allocations.h"
#include "common/rounds.h"

namespace {

using torch::autograd::variable_list;

// The loss's node: gives every parameter a fresh gradient of ones.
struct Touch : torch::autograd::Node {
  explicit Touch(const variable_list& parameters)
      : Node(torch::autograd::collect_next_edges(parameters)),
        count(parameters.size()),
        shape(parameters[0].sizes().vec()),
        options(parameters[0].options().requires_grad(false)) {}
  variable_list apply(variable_list&&) override {
    variable_list grads;
    for (size_t i = 0; i < count; ++i) grads.push_back(at::ones(shape, options));
    return grads;
  }
  size_t count;
  std::vector<int64_t> shape;
  at::TensorOptions options;
};

struct Tiny : torch::nn::Module {
  Tiny(int64_t count, int64_t numel) {
    for (int64_t i = 0; i < count; ++i) all.push_back(register_parameter("p" + std::to_string(i), at::randn({numel})));
  }
  at::Tensor forward() {
    at::Tensor loss = at::ones({});
    torch::autograd::set_history(loss, std::make_shared<Touch>(all));
    return loss;
  }
  variable_list all;
};

std::string option(int argc, char** argv, const char* name, const char* fallback) {
  for (int i = 1; i + 1 < argc; ++i)
    if (!std::strcmp(argv[i], name)) return argv[i + 1];
  return fallback;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string dtype = option(argc, argv, "--dtype", "fp32");
  const int64_t stage = std::stoll(option(argc, argv, "--stage", "2")), numel = std::stoll(option(argc, argv, "--numel", "16")),
                only = std::stoll(option(argc, argv, "--only", "0"));
  const int rounds = std::stoi(option(argc, argv, "--rounds", "15"));
  constexpr int64_t kMicroBatches = 4;

  for (const int64_t count : {100, 1'000, 10'000}) {
    if (only != 0 && count != only) continue;
    auto ours = std::make_shared<Tiny>(count, numel), plain = std::make_shared<Tiny>(count, numel);
    gannet::Dict config{{"train_micro_batch_size_per_gpu", 1},
                        {"gradient_accumulation_steps", kMicroBatches},
                        {"zero_optimization", gannet::Dict{{"stage", stage}}},
                        {"optimizer", gannet::Dict{{"type", "AdamW"}, {"params", gannet::Dict{{"lr", 1e-4}}}}}};
    if (dtype != "fp32") {
      config[dtype] = gannet::Dict{{"enabled", true}};
      for (auto& parameter : plain->all) parameter.set_data(parameter.to(dtype == "bf16" ? at::kBFloat16 : at::kHalf));
    }
    auto engine = gannet::initialize(ours, {.config = config}).engine;
    uint64_t ours_allocated = 0, plain_allocated = 0, step_allocated = 0;
    double step_s = 0;
    const auto of_engine = [&] {
      for (int64_t i = 0; i < kMicroBatches; ++i) {
        const at::Tensor loss = engine->forward();
        uint64_t before = gannet::bench::allocations();
        if (i + 1 < kMicroBatches) {
          engine->backward(loss);
          ours_allocated = gannet::bench::allocations() - before;
          engine->step();
        }
        if (i + 1 < kMicroBatches) continue;
        engine->backward(loss);
        before = gannet::bench::allocations();
        step_s = gannet::bench::seconds([&] { engine->step(); });
        step_allocated = gannet::bench::allocations() - before;
      }
    };
    const auto of_torch = [&] {
      for (int64_t i = 0; i < kMicroBatches; ++i) {
        const at::Tensor loss = plain->forward();
        const uint64_t before = gannet::bench::allocations();
        loss.backward();
        for (auto& parameter : plain->all) parameter.mutable_grad().reset();
        plain_allocated = gannet::bench::allocations() - before;
      }
    };
    std::vector<double> added, steps;
    for (int round = 0; round <= rounds; ++round) {
      const double engine_s = gannet::bench::seconds(of_engine), plain_s = gannet::bench::seconds(of_torch);
      if (round == 0) continue;
      added.push_back((engine_s - step_s - plain_s) / static_cast<double>(kMicroBatches * count) * 1e9);
      steps.push_back(step_s / static_cast<double>(count) * 1e9);
    }
    if (engine->rank() == 0)
      std::printf(
          "{\"figure\": \"hooks\", \"parameters\": %lld, \"numel\": %lld, \"dtype\": \"%s\", \"stage\": %lld, \"ranks\": %u, "
          "\"backward_allocations_added\": %lld, \"step_allocations\": %llu, "
          "\"step_ns_per_parameter\": %.1f, \"hook_calls\": %lld, \"added_ns_per_parameter_and_micro_step\": %.1f}\n",
          static_cast<long long>(count), static_cast<long long>(numel), dtype.c_str(), static_cast<long long>(stage),
          engine->world_size(), static_cast<long long>(ours_allocated - plain_allocated),
          static_cast<unsigned long long>(step_allocated), gannet::bench::median(steps),
          static_cast<long long>(count * kMicroBatches * (rounds + 1)), gannet::bench::median(added));
    std::fflush(stdout);
  }
}
