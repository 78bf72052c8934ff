// Measures what a checkpoint costs the training loop: the call that starts a background save
// against a complete foreground save, steps during the write against undisturbed steps, and the
// memory of the copy. The checkpoint is 1 GiB: 89M parameters in fp32 with Adam's two states.
//
//   checkpoint_async_bench FOLDER [rounds [width]]
#include <ATen/ops/randn.h>
#include <gannet/gannet.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "common/rounds.h"

namespace {

using gannet::bench::median;
using gannet::bench::seconds;

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t width) {
    for (int i = 0; i < 6; ++i) layers->push_back(torch::nn::Linear(width, width));
    register_module("layers", layers);
  }
  at::Tensor forward(const at::Tensor& x) { return layers->forward(x).square().mean(); }
  torch::nn::Sequential layers;
};
TORCH_MODULE(Net);

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "checkpoint_async_bench FOLDER [rounds [width]]\n"), 2;
  const std::string folder = argv[1];
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  const int64_t width = argc > 3 ? std::atoll(argv[3]) : 3860;

  gannet::set_log_level(gannet::LogLevel::kWarning);
  const auto make = [&](bool is_async) {
    return gannet::initialize(
               Net(width),
               {.config = gannet::Dict{{"train_micro_batch_size_per_gpu", 64},
                                       {"optimizer", gannet::Dict{{"type", "AdamW"}, {"params", gannet::Dict{{"lr", 1e-4}}}}},
                                       {"gannet", gannet::Dict{{"checkpoint", gannet::Dict{{"async", is_async}, {"keep", 1}}}}}}})
        .engine;
  };
  auto in_front = make(false), behind = make(true);
  const at::Tensor x = at::randn({64, width});
  const auto step = [&](auto& engine) {
    engine->backward(engine->forward(x));
    engine->step();
  };
  for (int i = 0; i < 3; ++i) step(in_front), step(behind);

  gannet::bench::Rounds times;
  const int64_t before = resident_bytes();
  int64_t copy_bytes = 0;
  uint64_t written = 0;
  for (int round = 0; round <= rounds; ++round) {
    const double whole = seconds([&] { written = in_front->save_checkpoint(folder + "/sync").bytes; });
    const double alone = seconds([&] { step(behind), step(behind), step(behind); }) / 3;
    const double call = seconds([&] { behind->save_checkpoint(folder + "/async"); });
    if (round == 0) copy_bytes = resident_bytes() - before;
    // The write takes about as long as a foreground save; steps that begin in its first half count.
    double beside = 0;
    int steps = 0;
    while (steps == 0 || beside < whole / 2) beside += seconds([&] { step(behind); }), ++steps;
    behind->wait_for_checkpoint();
    std::printf("%s  save %.0f ms, call %.0f ms; step alone %.0f ms, beside the write %.0f ms (%d steps)\n",
                round ? ("round " + std::to_string(round)).c_str() : "warm-up", whole * 1e3, call * 1e3, alone * 1e3,
                beside / steps * 1e3, steps);
    std::fflush(stdout);
    if (round == 0) continue;
    times["call"].push_back(call);
    times["save"].push_back(whole);
    times["beside"].push_back(beside / steps);
    times["alone"].push_back(alone);
  }
  gannet::bench::print_figure("checkpoint_async_stall", times, "call", "save",
                              {{"checkpoint_MiB", static_cast<double>(written) / (1 << 20)},
                               {"extra_memory_MiB", static_cast<double>(copy_bytes) / (1 << 20)},
                               {"bar", 0.15}});
  gannet::bench::print_figure("checkpoint_async_step", times, "beside", "alone");
}
