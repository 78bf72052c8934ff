// The optimizer step: norm, overflow check, unscale, clip, AdamW on fp32 masters, bf16 gradient in and bf16 parameter out.
//
//   optimizer_bench [bound | torch | partition | lamb | muon | family]... [--numel N] [--rounds N]        all unless named
//
//   bound      against 30 bytes per parameter at the read-modify-write bandwidth measured in the same rounds
//   torch      against torch::optim::AdamW with separate passes, and against at::_fused_adamw_ with casts
//   partition  2^26 elements against 2^26 + 1000, per element
//   lamb       LAMB in fp32 against 40 bytes per parameter at the read-modify-write bandwidth measured in the same rounds
//   family     the other optimizers in fp32, each against its bytes at that bandwidth: parameters and states read and written,
//              gradients read
//   muon       Muon's step on one matrix against the same iteration with LibTorch's products, with
//              its GFLOP/s and those of multiply-adds in registers
#include <cstring>
#include <string>

#include "common/rounds.h"
#include "group_step.h"
#include "matrix_peak.h"
#include "our_step.h"
#include "torch_steps.h"

namespace gannet::bench {
namespace {

__attribute__((target_clones("default", "avx2", "avx512f"))) void read_modify_write(float* x, uint64_t begin, uint64_t end) {
  for (uint64_t i = begin; i < end; ++i) x[i] = x[i] * 0.999f + 1e-3f;
}

void bench_bound(uint64_t numel, int count) {
  OurStep ours(numel);
  const uint64_t swept = 3 * numel;  // as many bytes as the pass reads and writes back
  const at::Tensor buffer = allocate_flat(static_cast<int64_t>(swept), at::kFloat, at::kCPU);
  auto* x = static_cast<float*>(buffer.data_ptr());
  auto sweep = [&] {
    parallel_for(0, swept, OurStep::kGrain, [&](uint64_t begin, uint64_t end) noexcept { read_modify_write(x, begin, end); });
  };
  const Rounds rounds = alternate({{"ours", [&] { ours.run(); }}, {"rmw", sweep}}, count);
  // The sweep moves 8 bytes per float, the bound 30 per parameter.
  const double factor = 30.0 * static_cast<double>(numel) / (8.0 * static_cast<double>(swept));
  print_figure("optimizer_step_vs_30_bytes", rounds, "ours", "rmw",
               {{"rmw_gb_per_s", 8e-9 * static_cast<double>(swept) / median(rounds.at("rmw"))}, {"bar", 1.12}}, factor);
}

// Compares one optimizer's step with the time to move `bytes` bytes per parameter.
void bench_bytes(const std::string& figure, GroupStep& step, double bytes, double bar, int count) {
  const uint64_t swept = 3 * step.numel();
  const at::Tensor buffer = allocate_flat(static_cast<int64_t>(swept), at::kFloat, at::kCPU);
  auto* x = static_cast<float*>(buffer.data_ptr());
  auto sweep = [&] {
    parallel_for(0, swept, OurStep::kGrain, [&](uint64_t begin, uint64_t end) noexcept { read_modify_write(x, begin, end); });
  };
  const Rounds rounds = alternate({{"ours", [&] { step.run(); }}, {"rmw", sweep}}, count);
  const double factor = bytes * static_cast<double>(step.numel()) / (8.0 * static_cast<double>(swept));
  print_figure(figure, rounds, "ours", "rmw",
               {{"bytes", bytes}, {"rmw_gb_per_s", 8e-9 * static_cast<double>(swept) / median(rounds.at("rmw"))}, {"bar", bar}},
               factor);
}

// Shapes of 100 matrices of 1024 columns, `numel` elements in total.
std::vector<std::vector<int64_t>> matrices(uint64_t numel) {
  constexpr int64_t kTensors = 100, kColumns = 1024;
  return std::vector<std::vector<int64_t>>(kTensors, {static_cast<int64_t>(numel) / kTensors / kColumns, kColumns});
}

void bench_lamb(uint64_t numel, int count) {
  GroupStep lamb("Lamb", Dict{{"weight_decay", 0.01}}, matrices(numel));
  bench_bytes("lamb_vs_40_bytes", lamb, 40, 1.15, count);
}

void bench_family(uint64_t numel, int count) {
  const std::vector<std::pair<const char*, Dict>> all = {
      {"SGD", Dict{{"momentum", 0.9}}}, {"Adagrad", Dict{}},   {"RMSprop", Dict{}},  {"NAdam", Dict{}}, {"Lion", Dict{}},
      {"AdamWScheduleFree", Dict{}},    {"AdamW8bit", Dict{}}, {"Adafactor", Dict{}}};
  for (const auto& [name, params] : all) {
    GroupStep step(name, params, matrices(numel));
    // Adafactor reads gradients twice for its sums, and parameters once.
    const bool has_sums = std::string(name) == "Adafactor";
    bench_bytes(std::string(name) + "_vs_its_bytes", step, step.bytes() + (has_sums ? 16 : 0), 1.12, count);
  }
}

void bench_muon(int count) {
  constexpr uint64_t kSpins = 10'000'000;
  for (const auto& [n, m] : std::vector<std::pair<int64_t, int64_t>>{{768, 768}, {768, 3072}, {2048, 2048}}) {
    for (const char* method : {"standard", "gram"}) {
      GroupStep muon("Muon", Dict{{"ns_method", method}}, {{n, m}});
      const at::Tensor x = at::from_blob(const_cast<float*>(muon.grad()), {n, m}, at::kFloat);
      const Rounds rounds =
          alternate({{"ours", [&] { muon.run(); }}, {"torch", [&] { newton_schulz(x); }}, {"peak", [] { spin(kSpins); }}}, count);
      const double operations = operations_of_newton_schulz(static_cast<double>(n), static_cast<double>(m));
      print_figure("muon_" + std::to_string(n) + "x" + std::to_string(m) + "_" + method + "_vs_torch_products", rounds, "ours",
                   "torch",
                   {{"gflop_per_s", 1e-9 * operations / median(rounds.at("ours"))},
                    {"torch_gflop_per_s", 1e-9 * operations / median(rounds.at("torch"))},
                    {"peak_gflop_per_s", 1e-9 * operations_of_spin(kSpins) / median(rounds.at("peak"))}});
    }
  }
}

void bench_torch(uint64_t numel, int count) {
  constexpr uint64_t kTensors = 148;  // as many as GPT-2 has
  OurStep ours(numel);
  TorchAdamWStep adamw(numel, kTensors, OurStep::kLossScale);
  FusedAdamWStep fused(numel, kTensors, OurStep::kLossScale);
  const Rounds rounds = alternate(
      {{"ours", [&] { ours.run(); }}, {"torch_adamw", [&] { adamw.run(); }}, {"fused_adamw", [&] { fused.run(); }}}, count);
  print_figure("optimizer_step_vs_torch_adamw", rounds, "ours", "torch_adamw", {{"bar", 1.0 / 7}});
  print_figure("optimizer_step_vs_fused_adamw", rounds, "ours", "fused_adamw", {{"bar", 1}});
}

void bench_partition(int count) {
  constexpr uint64_t kPower = 1 << 26, kOdd = kPower + 1000;
  OurStep power(kPower), odd(kOdd);
  const Rounds rounds = alternate({{"odd", [&] { odd.run(); }}, {"power_of_two", [&] { power.run(); }}}, count);
  // Per-element speed of 2^26 over that of 2^26 + 1000: the latter's time over the former's.
  print_figure("partition_power_of_two_speed", rounds, "odd", "power_of_two", {{"bar_at_least", 0.92}},
               static_cast<double>(kOdd) / kPower);
}

}  // namespace
}  // namespace gannet::bench

int main(int argc, char** argv) {
  uint64_t numel = 100'000'000;
  int rounds = 9;
  std::string wanted;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--numel") && i + 1 < argc)
      numel = std::stoull(argv[++i]);
    else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc)
      rounds = std::stoi(argv[++i]);
    else
      wanted += std::string(" ") + argv[i];
  }
  auto want = [&](const char* name) { return wanted.empty() || wanted.find(name) != std::string::npos; };
  std::printf("%llu parameters, %u threads\n", static_cast<unsigned long long>(numel), gannet::parallel_thread_count());
  if (want("bound")) gannet::bench::bench_bound(numel, rounds);
  if (want("torch")) gannet::bench::bench_torch(numel, rounds);
  if (want("lamb")) gannet::bench::bench_lamb(numel, rounds);
  if (want("family")) gannet::bench::bench_family(numel, rounds);
  if (want("muon")) gannet::bench::bench_muon(rounds);
  if (want("partition")) gannet::bench::bench_partition(rounds);
}
