// The 1-bit optimizers' loops on the CPU, against the read-modify-write bandwidth measured in the
// same rounds.
//
//   onebit_bench [--numel N] [--rounds N]
//
//   compress   packs the signs and keeps the rest: 8 1/8 bytes per element
//   work       a worker: reads momentum, fp32 gradient and error, then compresses: 24 1/8 bytes
//   serve      a server: reads 4 ranks' bits, updates its error, then compresses: 16 5/8 bytes
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "common/rounds.h"
#include "optimizers/onebit/kernel.h"

namespace gannet::bench {
namespace {

constexpr uint64_t kGrain = 16384;

__attribute__((target_clones("default", "avx2", "avx512f"))) void read_modify_write(float* x, uint64_t begin, uint64_t end) {
  for (uint64_t i = begin; i < end; ++i) x[i] = x[i] * 0.999f + 1e-3f;
}

template <class Body>
void in_parallel(uint64_t numel, const Body& body) {
  parallel_for(0, numel, kGrain, body);
}

void run(uint64_t numel, int count) {
  std::vector<float> momentum(numel), gradient(numel), error(numel), swept(numel);
  for (uint64_t i = 0; i < numel; ++i) {
    momentum[i] = static_cast<float>(i % 17) - 8;
    gradient[i] = static_cast<float>(i % 13) - 6;
  }
  constexpr uint32_t kRanks = 4;
  std::vector<uint8_t> bits(numel / 8), received(numel / 8 * kRanks, 0x5a);
  const std::vector<float> scales = {1, 2, 3, 4};
  const rules::MomentumInputs from{momentum.data(), gradient.data(), GANNET_FLOAT32, 0.9f, 0.1f, 1.0f};
  const auto compress = [&] {
    in_parallel(numel, [&](uint64_t begin, uint64_t end) {
      rules::compress_cpu(error.data() + begin, end - begin, 1e-3f, bits.data() + begin / 8);
    });
  };
  const auto work = [&] {
    in_parallel(numel, [&](uint64_t begin, uint64_t end) { rules::add_error_cpu(from, error.data(), begin, end); });
    compress();
  };
  const auto serve = [&] {
    in_parallel(numel, [&](uint64_t begin, uint64_t end) {
      rules::average_cpu(received.data() + begin / 8, numel / 8, scales.data(), kRanks, error.data() + begin, end - begin);
    });
    compress();
  };
  const auto sweep = [&] {
    in_parallel(numel, [&](uint64_t begin, uint64_t end) { read_modify_write(swept.data(), begin, end); });
  };
  const Rounds rounds = alternate({{"compress", compress}, {"work", work}, {"serve", serve}, {"rmw", sweep}}, count);
  const double rmw = 8e-9 * static_cast<double>(numel) / median(rounds.at("rmw"));
  for (const auto& [name, bytes] : {std::pair{"compress", 8.125}, {"work", 24.125}, {"serve", 16.625}})
    print_figure(
        std::string("onebit_") + name + "_vs_bandwidth", rounds, name, "rmw",
        {{"gb_per_s", 1e-9 * bytes * static_cast<double>(numel) / median(rounds.at(name))}, {"rmw_gb_per_s", rmw}, {"bar", 1.25}},
        bytes / 8);
}

}  // namespace
}  // namespace gannet::bench

int main(int count, char** arguments) {
  uint64_t numel = uint64_t{1} << 26;
  int rounds = 9;
  for (int i = 1; i + 1 < count; i += 2) {
    if (std::strcmp(arguments[i], "--numel") == 0) numel = std::stoull(arguments[i + 1]) / 128 * 128;
    if (std::strcmp(arguments[i], "--rounds") == 0) rounds = std::stoi(arguments[i + 1]);
  }
  gannet::bench::run(numel, rounds);
}
