// Speed of AdamW's update on the GPU: fp32 master, bf16 gradient in, bf16 parameter out, 28 bytes per parameter, beside a copy
// on the device and at::_fused_adamw_ with its casts. One JSON line per figure: median of 11 rounds, taken in turns.
//
//   gpu_speed [millions of parameters, 100]
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "gpu/device.h"
#include "optimizers/loaded_plugin.h"

using namespace gannet;

namespace {

constexpr int kRounds = 11, kCalls = 20;

struct Contender {
  const char* name;
  double bytes;
  std::function<void()> call;
  std::vector<double> ms = {};
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t numel = (argc > 1 ? std::atoll(argv[1]) : 100) * 1'000'000;
  auto& gpu = test::Gpu::instance();
  if (!gpu.accelerator) {
    std::fprintf(stderr, "gpu_speed: %s\n", gpu.refusal.c_str());
    return 3;
  }
  const auto fp32 = at::TensorOptions().device(at::Device(at::kCUDA, 0)), bf16 = fp32.dtype(at::kBFloat16);
  at::Tensor param = at::ones({numel}, fp32), grad = at::ones({numel}, bf16), out = at::empty({numel}, bf16);
  at::Tensor exp_avg = at::zeros({numel}, fp32), exp_avg_sq = at::zeros({numel}, fp32), copy = at::empty({numel}, fp32),
             step = at::ones({}, fp32);

  const test::LoadedPlugin plugin("optimizer_adam_cuda", "AdamW");
  test::TestHost host;
  const test::OptimizerUnderTest adam(plugin, Dict{{"lr", 1e-4}, {"weight_decay", 0.1}}, host);
  void* states[] = {exp_avg.data_ptr(), exp_avg_sq.data_ptr()};
  gannet_update_args args{};
  args.struct_size = sizeof(args);
  args.param_dtype = GANNET_FLOAT32;
  args.grad_dtype = args.out_dtype = GANNET_BFLOAT16;
  args.numel = static_cast<uint64_t>(numel);
  args.param = param.data_ptr();
  args.grad = grad.data_ptr();
  args.out = out.data_ptr();
  args.states = states;
  args.state_count = 2;
  args.grad_scale = 0.5;
  args.step = 1;
  args.hyper = adam.params.hyper.data();
  args.hyper_count = adam.params.hyper.size();

  Contender contenders[] = {{"copy on the device", 8.0 * numel, [&] { copy.copy_(param); }},
                            {"gannet adamw@cuda", 28.0 * numel, [&] { adam.update(args); }},
                            {"at::_fused_adamw_ with casts", 28.0 * numel, [&] {
                               const at::Tensor wide = grad.to(at::kFloat).mul_(0.5);
                               at::_fused_adamw_({param}, {wide}, {exp_avg}, {exp_avg_sq}, {}, {step}, 1e-4, 0.9, 0.999, 0.1,
                                                 1e-8, false, false);
                               out.copy_(param);
                             }}};
  for (int round = -1; round < kRounds; ++round) {
    for (auto& contender : contenders) {
      gpu.accelerator->synchronize(0);
      const auto began = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i) contender.call();
      gpu.accelerator->synchronize(0);
      const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count() / kCalls;
      if (round >= 0) contender.ms.push_back(ms);  // the first round warms up
    }
  }
  for (const auto& contender : contenders)
    std::printf("{\"bench\": \"gpu_update\", \"what\": \"%s\", \"parameters\": %lld, \"ms\": %.4f, \"gb_per_s\": %.1f}\n",
                contender.name, static_cast<long long>(numel), median(contender.ms),
                contender.bytes / median(contender.ms) * 1e-6);
  std::printf("{\"bench\": \"gpu_update\", \"what\": \"bandwidth of the update over that of the copy\", \"ratio\": %.3f}\n",
              contenders[1].bytes / median(contenders[1].ms) / (contenders[0].bytes / median(contenders[0].ms)));
}
