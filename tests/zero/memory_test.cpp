// Bytes that stay on a rank equal the formulas of docs/zero.md: counted by LibTorch's allocator and by our flat buffers, and checked
// against what the kernel says the process has.
#include <c10/core/CPUAllocator.h>
#include <gannet/gannet.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <new>
#include <unordered_map>

#include "comm/ranks.h"
#include "engine/impl.h"
#include "engine/models.h"
#include "tensor/flat_buffer.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

// Counts what LibTorch asks for and has not given back.
class Counting : public c10::Allocator {
 public:
  static Counting& instance() {
    static auto* one = new Counting;
    return *one;
  }
  int64_t alive() const { return alive_; }

  c10::DataPtr allocate(size_t bytes) override {
    void* memory = bytes > 0 ? std::aligned_alloc(64, (bytes + 63) / 64 * 64) : nullptr;
    if (bytes > 0 && !memory) throw std::bad_alloc();
    const std::lock_guard lock(mutex_);
    if (memory) sizes_[memory] = static_cast<int64_t>(bytes);
    alive_ += static_cast<int64_t>(bytes);
    return {memory, memory, &Counting::give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Counting::give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static void give_back(void* memory) {
    if (!memory) return;
    Counting& self = instance();
    const std::lock_guard lock(self.mutex_);
    self.alive_ -= self.sizes_.at(memory);
    self.sizes_.erase(memory);
    std::free(memory);
  }
  std::mutex mutex_;
  std::unordered_map<void*, int64_t> sizes_;
  std::atomic<int64_t> alive_{0};
};

int64_t alive() { return Counting::instance().alive() + gannet::flat_bytes_alive(); }

int64_t resident() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

struct DeepImpl : torch::nn::Module {
  static constexpr int64_t kWidth = 512, kLayers = 20;
  static constexpr int64_t parameters() { return kLayers * kWidth * kWidth; }
  DeepImpl() {
    for (int64_t i = 0; i < kLayers; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false))));
  }
  at::Tensor forward(at::Tensor h) {
    for (auto& layer : layers) h = torch::tanh(layer(h));
    return h.to(torch::kFloat).pow(2).mean();
  }
  std::vector<torch::nn::Linear> layers;
};

RANK_BODY(memory) {
  c10::SetCPUAllocator(&Counting::instance(), /*priority=*/100);
  auto world = gannet::init_distributed({.timeout_seconds = 120});
  const int64_t count = world->size(), P = DeepImpl::parameters(), layer = DeepImpl::kWidth * DeepImpl::kWidth;
  {  // pools and code that the first of everything brings are no one's
    auto engine = gannet::initialize(make_net(), {.config = config_with({})}).engine;
    auto [x, y] = make_batch(0, 4);
    engine->backward(engine->forward(x, y));
    engine->step();
  }
  for (const int64_t stage : {0, 1, 2, 3}) {
    ::malloc_trim(0);
    const int64_t before = alive(), resident_before = resident();
    Dict config = config_with({{"bf16", Dict{{"enabled", true}}},
                               {"zero_optimization", Dict{{"stage", stage}, {"reduce_bucket_size", layer}, {"stage3_param_persistence_threshold", 0},
                                                          {"stage3_prefetch_bucket_size", layer}, {"stage3_max_reuse_distance", 0}}}});
    auto engine = gannet::initialize(std::make_shared<DeepImpl>(), {.config = config}).engine;
    const at::Tensor x = torch::ones({2, DeepImpl::kWidth}, torch::kBFloat16);
    for (int step = 0; step < 2; ++step) {
      engine->backward(engine->forward(x));
      engine->step();
    }
    engine->backward(engine->forward(x));  // gradients are part of it
    if (auto& reducer = engine->impl().reducer) reducer->wait();
    const double expected = count == 1 ? 16.0 * P : stage == 0 ? 16.0 * P : stage == 1 ? 4.0 * P + 12.0 * P / count : stage == 2 ? 2.0 * P + 14.0 * P / count : 16.0 * P / count;
    const auto& residency = engine->impl().residency;
    const int64_t spare = residency ? residency->spare_bytes() : 0, buckets = stage >= 2 && count > 1 ? 2 * 2 * layer : 0;
    const double counted = static_cast<double>(alive() - before - spare);
    const std::string what = "stage " + std::to_string(stage) + " on " + std::to_string(count) + " ranks: " + std::to_string(counted / P) + " bytes a parameter, the formula says " + std::to_string(expected / P);
    // Padding is below 32 elements a tensor and rank; beside it a few small tensors of the program's and of autograd's.
    const double padding = 16.0 * DeepImpl::kLayers * 32 * static_cast<double>(count) + (64 << 10);
    expect(counted >= expected && counted <= expected + buckets + padding, what);
    if (residency) {
      ranks::same(residency->live_bytes(), int64_t{0}, "no parameter is here between backward and step");
      expect(residency->peak_bytes() <= 2 * (2 * layer + layer), "transient: two operators' parameters and the prefetch bucket");
      expect(spare <= residency->peak_bytes(), "what is kept for later is no more than was once in use");
    }
    // The kernel's count has pages of freed memory and of libraries in it: a coarse check that the fine one looks at the right thing.
    const double grown = static_cast<double>(resident() - resident_before);
    expect(grown < 1.15 * (expected + buckets + static_cast<double>(spare)) + (24 << 20), what + "; the process grew by " + std::to_string(grown / P) + " bytes a parameter");
    engine->step();
  }
}

TEST(Memory, OfARankIsWhatTheFormulasSay) {
  for (const int count : {1, 2, 4, 8}) ranks::expect_all_succeed(run_ranks("memory", count, {.limit = std::chrono::seconds(200)}));
}

}  // namespace
