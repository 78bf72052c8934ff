// The 1-bit average apart from an engine: the loops on odd lengths, and a Compressor on ranks that are threads.
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "optimizers/onebit/compressor.h"

namespace gannet::rules {
namespace {

std::vector<float> numbers(uint64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> all(count);
  for (float& each : all) each = normal(random);
  return all;
}

TEST(OneBitLoops, SendSignsAndKeepTheRestAtEveryLength) {
  for (uint64_t count = 1; count < 70; ++count) {
    std::vector<float> values = numbers(count, static_cast<uint32_t>(count));
    values[count / 2] = count % 2 ? 0.0f : -0.0f;
    std::vector<float> rest = values, back(count + 1, 9);
    std::vector<uint8_t> bits((count + 15) / 16 * 2 + 1, 0xa5);
    compress_cpu(rest.data(), count, 0.75f, bits.data());
    expand_cpu(bits.data(), count, 0.75f, back.data());
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ((bits[i / 8] >> i % 8) & 1, values[i] >= 0) << "the sign of element " << i << " of " << count;
      ASSERT_EQ(back[i], values[i] >= 0 ? 0.75f : -0.75f);
      ASSERT_EQ(rest[i], values[i] - back[i]);
    }
    ASSERT_EQ(bits.back(), 0xa5) << "nothing behind the last group";
    ASSERT_EQ(back.back(), 9);
  }
}

TEST(OneBitLoops, AddMomentumAndErrorAndSumTheSquares) {
  for (const uint64_t count : {1, 15, 16, 17, 1000}) {
    const std::vector<float> momentum = numbers(count, 1), gradient = numbers(count, 2), before = numbers(count, 3);
    std::vector<float> error = before;
    const double squares =
        add_error_cpu({momentum.data(), gradient.data(), GANNET_FLOAT32, 0.9f, 0.1f, 0.5f}, error.data(), 0, count);
    double expected = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const float sum = 0.9f * momentum[i] + 0.1f * (gradient[i] * 0.5f) + before[i];
      ASSERT_NEAR(error[i], sum, 1e-6);
      expected += double{error[i]} * error[i];
    }
    ASSERT_NEAR(squares, expected, 1e-12 * expected);
  }
}

TEST(OneBitLoops, AverageTheRanksSigns) {
  const std::vector<uint8_t> bits = {0x0f, 0xff, 0x03, 0x00, 0xf0, 0x0f, 0xff, 0xff};  // [ranks 2][4 bytes]
  const std::vector<float> scales = {1.0f, 3.0f};
  std::vector<float> error(19, 0.25f);
  const double squares = average_cpu(bits.data(), 4, scales.data(), 2, error.data(), 19);
  double expected = 0;
  for (uint64_t i = 0; i < 19; ++i) {
    float sum = 0;
    for (int r = 0; r < 2; ++r) sum += (bits[r * 4 + i / 8] >> i % 8 & 1) ? scales[r] : -scales[r];
    ASSERT_EQ(error[i], sum / 2 + 0.25f) << i;
    expected += double{error[i]} * error[i];
  }
  ASSERT_DOUBLE_EQ(squares, expected);
}

// A host of one rank among some that are threads. Collectives are those that a compressor uses.
class ThreadRanks {
 public:
  explicit ThreadRanks(uint32_t size) : barrier_(size), given_(size), size_(size) {}

  struct Rank {
    ThreadRanks* all;
    uint32_t number;
    uint64_t sent = 0;  // bytes to other ranks
  };
  static gannet_host host(Rank& rank) {
    gannet_host host{};
    host.struct_size = sizeof(host);
    host.context = &rank;
    host.parallel_for = [](void*, uint64_t begin, uint64_t end, uint64_t, gannet_loop_body body, void* argument) {
      return begin < end ? body(argument, begin, end) : int32_t{GANNET_OK};
    };
    host.rank = [](void* context, uint32_t) { return static_cast<Rank*>(context)->number; };
    host.world_size = [](void* context, uint32_t) { return static_cast<Rank*>(context)->all->size_; };
    host.collective = [](void* context, const gannet_host_collective* args, gannet_error*) -> int32_t {
      auto& rank = *static_cast<Rank*>(context);
      rank.all->run(rank, *args);
      return GANNET_OK;
    };
    return host;
  }

 private:
  void run(Rank& rank, const gannet_host_collective& args) {
    const uint64_t part = args.count * (args.dtype == GANNET_UINT8 ? 1 : 4);
    rank.sent += part * (size_ - 1);
    given_[rank.number] = static_cast<const char*>(args.send);
    barrier_.arrive_and_wait();
    std::vector<char> received(part * size_);
    for (uint32_t r = 0; r < size_; ++r)
      std::memcpy(received.data() + r * part, given_[r] + (args.operation == GANNET_HOST_ALL_TO_ALL ? rank.number * part : 0),
                  part);
    barrier_.arrive_and_wait();
    std::memcpy(args.recv, received.data(), received.size());
  }

  std::barrier<> barrier_;
  std::vector<const char*> given_;
  uint32_t size_;
};

// The inputs of all ranks equal the outputs of all plus the remaining errors; every rank gets the
// same.
TEST(Compressor, LosesNothingAndSendsTwoBitsAnElement) {
  for (const uint32_t ranks : {2u, 3u, 4u}) {
    const uint64_t numel = 96 * 32 * ranks;  // a tensor of 40,000 elements less or more is in blocks
    std::vector<gannet_segment> segments(3);
    const uint64_t begins[] = {0, 64, 1024}, numels[] = {37, 900, numel - 1024 - 5};
    for (size_t s = 0; s < 3; ++s) segments[s].offset = begins[s], segments[s].numel = numels[s];
    std::vector<std::vector<float>> momenta, errors, gradients, results(ranks), server(ranks, std::vector<float>(numel / ranks));
    for (uint32_t r = 0; r < ranks; ++r) {
      momenta.push_back(numbers(numel, 5));
      gradients.push_back(numbers(numel, 100 + r));
      errors.push_back(std::vector<float>(numel, 0));
      results[r].resize(numel);
    }
    for (int step = 0; step < 5; ++step) {
      const auto errors_before = errors, server_before = server;
      ThreadRanks all(ranks);
      std::vector<ThreadRanks::Rank> each;
      for (uint32_t r = 0; r < ranks; ++r) each.push_back({&all, r});
      std::vector<std::thread> threads;
      for (uint32_t r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
          const gannet_host host = ThreadRanks::host(each[r]);
          const sdk::HostServices services(host);
          gannet_update_args args{};
          args.numel = numel;
          args.grad = gradients[r].data();
          args.grad_dtype = GANNET_FLOAT32;
          args.grad_scale = 1;
          args.segments = segments.data();
          args.segment_count = segments.size();
          args.segment_stride = sizeof(gannet_segment);
          Compressor(services).average(args, 0.9, momenta[r].data(), errors[r].data(), server[r].data(), results[r].data());
        });
      for (auto& thread : threads) thread.join();
      for (uint32_t r = 0; r < ranks; ++r) {
        ASSERT_EQ(results[r], results[0]) << "every rank has the same";
        // Signs twice, and the scales of at most 3 tensors twice.
        ASSERT_LE(each[r].sent, 2 * numel / ranks / 8 * (ranks - 1) + 2 * 3 * 4 * (ranks - 1));
      }
      for (size_t s = 0; s < 3; ++s)
        for (uint64_t i = begins[s]; i < begins[s] + numels[s]; ++i) {
          double before = 0, after = 0;
          for (uint32_t r = 0; r < ranks; ++r) {
            before += (0.9 * momenta[r][i] + 0.1 * gradients[r][i] + errors_before[r][i]) / ranks;
            after += errors[r][i] / ranks;
          }
          const uint64_t chunk = numel / ranks;
          before += server_before[i / chunk][i % chunk];
          after += results[0][i] + server[i / chunk][i % chunk];
          ASSERT_NEAR(before, after, 1e-5) << "element " << i << " of " << ranks << " ranks, step " << step;
        }
      for (auto& momentum : momenta) momentum = results[0];
    }
  }
}

}  // namespace
}  // namespace gannet::rules
