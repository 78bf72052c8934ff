// Speed of AdamW's update on the GPU: fp32 master, bf16 gradient in, bf16 parameter out, 28 bytes per parameter, beside a copy
// on the device and at::_fused_adamw_ with its casts. Then a step of the optimizers that are more than a rule of one element, for
// one matrix. One JSON line per figure: median of 11 rounds, taken in turns.
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
#include "gpu/whole_tensor.h"
#include "optimizers/loaded_plugin.h"

using namespace gannet;

namespace {

constexpr int kRounds = 11, kCalls = 20;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Contender {
  const char* name;
  int64_t parameters;
  double bytes_per_parameter;
  std::function<void()> call;
  std::vector<double> ms = {};
  double gb_per_s() const { return bytes_per_parameter * static_cast<double>(parameters) / median(ms) * 1e-6; }
};

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

  test::WholeTensor lamb("optimizer_lamb_cuda", "Lamb", {}, {8192, 8192}),
      adam8bit("optimizer_adam8bit_cuda", "AdamW8bit", {}, {8192, 8192}),
      adafactor("optimizer_adafactor_cuda", "Adafactor", {}, {8192, 8192}), muon("optimizer_muon_cuda", "Muon", {}, {768, 3072});
  Contender contenders[] = {{"copy on the device", numel, 8, [&] { copy.copy_(param); }},
                            {"gannet adamw@cuda", numel, 28, [&] { adam.update(args); }},
                            {"at::_fused_adamw_ with casts", numel, 28,
                             [&] {
                               const at::Tensor wide = grad.to(at::kFloat).mul_(0.5);
                               at::_fused_adamw_({param}, {wide}, {exp_avg}, {exp_avg_sq}, {}, {step}, 1e-4, 0.9, 0.999, 0.1,
                                                 1e-8, false, false);
                               out.copy_(param);
                             }},
                            // Bytes that a step reads and writes: in the sums, if there are any,
                            // and in the update.
                            {"gannet lamb@cuda, 8192 x 8192", lamb.numel(), 14 + 28, [&] { lamb.step(); }},
                            {"gannet adamw8bit@cuda, 8192 x 8192", adam8bit.numel(), 16, [&] { adam8bit.step(); }},
                            {"gannet adafactor@cuda, 8192 x 8192", adafactor.numel(), 8 + 2 + 12, [&] { adafactor.step(); }},
                            // Its time is that of 1.7e10 operations of products.
                            {"gannet muon@cuda, 768 x 3072", muon.numel(), 20, [&] { muon.step(); }}};
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
                contender.name, static_cast<long long>(contender.parameters), median(contender.ms), contender.gb_per_s());
  std::printf("{\"bench\": \"gpu_update\", \"what\": \"bandwidth of the update over that of the copy\", \"ratio\": %.3f}\n",
              contenders[1].gb_per_s() / contenders[0].gb_per_s());
}
