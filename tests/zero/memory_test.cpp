// Bytes that stay on a rank equal the formulas of docs/zero.md: counted by LibTorch's allocator and by our flat buffers, and
// checked against what the kernel says the process has.
#include <c10/core/CPUAllocator.h>
#include <gannet/gannet.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>
#include <unordered_map>

#include "engine/impl.h"
#include "tensor/flat_buffer.h"
#include "zero/support.h"

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
  int64_t peak() const { return peak_; }
  void reset_peak() { peak_ = alive_.load(); }

  c10::DataPtr allocate(size_t bytes) override {
    void* memory = bytes > 0 ? std::aligned_alloc(64, (bytes + 63) / 64 * 64) : nullptr;
    if (bytes > 0 && !memory) throw std::bad_alloc();
    const std::lock_guard lock(mutex_);
    if (memory) sizes_[memory] = static_cast<int64_t>(bytes);
    alive_ += static_cast<int64_t>(bytes);
    peak_ = std::max<int64_t>(peak_, alive_);
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
  std::atomic<int64_t> alive_{0}, peak_{0};
};

int64_t alive() { return Counting::instance().alive() + gannet::flat_bytes_alive(); }

// Anonymous pages: those of files (code) come and go by the kernel's choice.
int64_t resident() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) << 10;
  return 0;
}

struct DeepImpl : torch::nn::Module {
  static constexpr int64_t kWidth = 512, kLayers = 20;
  static constexpr int64_t parameters() { return kLayers * kWidth * kWidth; }
  DeepImpl() {
    for (int64_t i = 0; i < kLayers; ++i)
      layers.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false))));
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
                               {"zero_optimization", Dict{{"stage", stage},
                                                          {"reduce_bucket_size", layer},
                                                          {"stage3_param_persistence_threshold", 0},
                                                          {"stage3_prefetch_bucket_size", layer},
                                                          {"stage3_max_reuse_distance", 0}}}});
    auto engine = gannet::initialize(std::make_shared<DeepImpl>(), {.config = config}).engine;
    const at::Tensor x = torch::ones({2, DeepImpl::kWidth}, torch::kBFloat16);
    for (int step = 0; step < 2; ++step) {
      engine->backward(engine->forward(x));
      engine->step();
    }
    engine->backward(engine->forward(x));  // gradients are part of it
    if (auto& reducer = engine->impl().reducer) reducer->wait();
    const double expected = count == 1   ? 16.0 * P
                            : stage == 0 ? 16.0 * P
                            : stage == 1 ? 4.0 * P + 12.0 * P / count
                            : stage == 2 ? 2.0 * P + 14.0 * P / count
                                         : 16.0 * P / count;
    auto* const residency = engine->impl().store.residency();
    const int64_t spare = residency ? residency->spare_bytes() : 0, buckets = stage >= 2 && count > 1 ? 2 * 2 * layer : 0;
    const double counted = static_cast<double>(alive() - before - spare);
    const std::string what = "stage " + std::to_string(stage) + " on " + std::to_string(count) +
                             " ranks: " + std::to_string(counted / P) + " bytes a parameter, the formula says " +
                             std::to_string(expected / P);
    // Padding is below 32 elements a tensor and rank; beside it a few small tensors of the program's and of autograd's.
    const double padding = 16.0 * DeepImpl::kLayers * 32 * static_cast<double>(count) + (64 << 10);
    expect(counted >= expected && counted <= expected + buckets + padding, what);
    if (residency) {
      ranks::same(residency->live_bytes(), int64_t{0}, "no parameter is here between backward and step");
      expect(residency->peak_bytes() <= 2 * (2 * layer + layer), "transient: two operators' parameters and the prefetch bucket");
      expect(spare <= residency->peak_bytes(), "what is kept for later is no more than was once in use");
    }
    // The kernel's count has memory beside tensors in it: a coarse check that the fine one looks at the right thing.
    ::malloc_trim(0);  // what was freed is not in use, whether the C library has given it back or not
    const double grown = static_cast<double>(resident() - resident_before);
    expect(grown < 1.15 * (expected + buckets + static_cast<double>(spare)) + (24 << 20),
           what + "; the process grew by " + std::to_string(grown / P) + " bytes a parameter");
    engine->step();
  }
}

TEST(Memory, OfARankIsWhatTheFormulasSay) {
  for (const int count : ranks::is_full() ? std::vector{1, 2, 4, 8} : std::vector{1, 2, 4})
    ranks::expect_all_succeed(run_ranks("memory", count));
}

// Built layer by layer, each shared out before the next one takes memory.
RANK_BODY(construction) {
  c10::SetCPUAllocator(&Counting::instance(), /*priority=*/100);
  auto world = gannet::init_distributed({.timeout_seconds = 120});
  const int64_t count = world->size(), P = DeepImpl::parameters(), layer = 4 * DeepImpl::kWidth * DeepImpl::kWidth;
  const Dict config = config_with(
      {{"zero_optimization", Dict{{"stage", 3}, {"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}}}});
  const at::Tensor x = torch::randn({2, DeepImpl::kWidth}, at::make_generator<at::CPUGeneratorImpl>(uint64_t{3} + world->rank()));
  const auto train = [&](const std::shared_ptr<DeepImpl>& model) {
    auto engine = gannet::initialize(model, {.config = config}).engine;
    for (int step = 0; step < 3; ++step) {
      engine->backward(engine->forward(x));
      engine->step();
    }
    return parameters_of(*engine);
  };
  torch::manual_seed(9);
  at::Tensor plain = train(std::make_shared<DeepImpl>());

  torch::manual_seed(9 + world->rank());  // rank 0's values win
  std::shared_ptr<DeepImpl> model;
  const int64_t before = alive();
  Counting::instance().reset_peak();
  {
    gannet::zero::Init init({.config = config});
    model = std::make_shared<DeepImpl>();
    const double peak = static_cast<double>(Counting::instance().peak() + gannet::flat_bytes_alive() - before),
                 bound = 1.05 * (4.0 * P / count + layer);
    expect(peak < bound + (64 << 10), "the peak while it is built is " + std::to_string(peak / P) +
                                          " bytes a parameter, the bound " + std::to_string(bound / P));
    {
      torch::NoGradGuard no_grad;  // an author who comes back to a parameter
      const double norm = model->layers[3]->weight.norm().item<double>();
      model->layers[3]->weight.mul_(0.5);
      expect(std::abs(model->layers[3]->weight.norm().item<double>() - 0.5 * norm) < 1e-5 * norm, "what is written is there");
      model->layers[3]->weight.mul_(2.0);
    }
  }
  try {
    model->layers[0]->weight.norm();
    expect(false, "a parameter without an engine was read");
  } catch (const gannet::Error& error) {
    expect(error.code() == gannet::ErrorCode::kOrder && error.next_step() == "give the model to gannet::initialize",
           error.what());
  }
  expect(torch::equal(train(model), plain), "trained as the model that was built whole");
}
TEST(Memory, WhileAModelIsBuiltIsAShardAndALayer) {
  for (const int count : {2, 4}) ranks::expect_all_succeed(run_ranks("construction", count));
}

// The layers of a GPT, of any size.
struct GptLayersImpl : torch::nn::Module {
  static constexpr int64_t kVocabulary = 50304;
  GptLayersImpl(int64_t width, int64_t layers) {
    embedding = register_module("embedding", torch::nn::Embedding(kVocabulary, width));
    const auto linear = [&](const std::string& name, int64_t in, int64_t out) {
      register_module(name, torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false)));
    };
    for (int64_t i = 0; i < layers; ++i) {
      const std::string at = std::to_string(i);
      linear("attention" + at, width, 3 * width);
      linear("projection" + at, width, width);
      linear("up" + at, width, 4 * width);
      linear("down" + at, 4 * width, width);
    }
  }
  torch::nn::Embedding embedding{nullptr};
};

// By hand at any size, 1.1 thousand million parameters here:
//   GANNET_TEST_RANK_BODY=gpt_construction WIDTH=2048 LAYERS=20 build/bin/gannet run --num_procs 4 build/tests/zero_values_test
RANK_BODY(gpt_construction) {
  c10::SetCPUAllocator(&Counting::instance(), /*priority=*/100);
  auto world = gannet::init_distributed({.timeout_seconds = 600});
  const int64_t width = std::stoll(variable("WIDTH")), layers = std::stoll(variable("LAYERS"));
  const Dict config = config_with({{"zero_optimization", Dict{{"stage", 3}, {"stage3_param_persistence_threshold", 0}}}});
  const int64_t before = alive(), parameters = 12 * width * width * layers + GptLayersImpl::kVocabulary * width;
  Counting::instance().reset_peak();
  gannet::zero::Init init({.config = config});
  GptLayersImpl model(width, layers);
  const double shard = 4.0 * static_cast<double>(parameters) / world->size(),
               layer = 4.0 * static_cast<double>(width) * std::max(4 * width, GptLayersImpl::kVocabulary);
  const double peak = static_cast<double>(Counting::instance().peak() + gannet::flat_bytes_alive() - before);
  std::printf("rank %d: %.3fe9 parameters, shard %.1f MiB, largest layer %.1f MiB, peak %.1f MiB: %.4f of both\n", world->rank(),
              static_cast<double>(parameters) / 1e9, shard / 0x1p20, layer / 0x1p20, peak / 0x1p20, peak / (shard + layer));
  expect(peak <= 1.05 * (shard + layer),
         "the peak is " + std::to_string(peak / (shard + layer)) + " of a shard and the largest layer");
}
TEST(Memory, WhileAGptIsBuiltIsAShardAndItsLargestLayer) {
  ranks::expect_all_succeed(run_ranks("gpt_construction", 4, {.environment = {{"WIDTH", "128"}, {"LAYERS", "3"}}}));
}

// Weights go from a file into the shards of a model that is being built, a few tensors at a time.
RANK_BODY(loading) {
  c10::SetCPUAllocator(&Counting::instance(), /*priority=*/100);
  auto world = gannet::init_distributed({.timeout_seconds = 120});
  const Dict config = config_with(
      {{"zero_optimization", Dict{{"stage", 3}, {"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}}}});
  const int64_t whole = 4 * DeepImpl::parameters(), layer = whole / DeepImpl::kLayers, together = 8 << 20;
  const std::string folder = variable("FOLDER"), file = folder + "/weights.safetensors";
  at::Tensor expected;
  {
    auto plain = std::make_shared<DeepImpl>();
    {
      torch::NoGradGuard no_grad;
      for (auto& entry : plain->named_parameters())
        entry.value().uniform_(-1, 1, at::make_generator<at::CPUGeneratorImpl>(uint64_t{5}));
    }
    expected = at::cat([&] {
      std::vector<at::Tensor> all;
      for (auto& entry : plain->named_parameters()) all.push_back(entry.value().detach().flatten());
      return all;
    }());
    if (world->rank() == 0) gannet::save_weights(*plain, file);
    gannet::initialize(plain, {.config = config}).engine->save_checkpoint(folder + "/run");
  }
  for (const std::string& source : {file, folder + "/run"}) {
    std::shared_ptr<DeepImpl> model;
    const int64_t before = alive();
    Counting::instance().reset_peak();
    {
      gannet::zero::Init init({.config = config});
      model = std::make_shared<DeepImpl>();
      ranks::same(gannet::load_weights(*model, source), DeepImpl::kLayers, "all of its tensors");
    }
    const int64_t peak = Counting::instance().peak() + gannet::flat_bytes_alive() - before,
                  bound = whole / world->size() + together + 3 * layer;
    expect(peak < bound, source + ": the peak is " + std::to_string(peak) + " bytes, the bound " + std::to_string(bound));
    auto engine = gannet::initialize(model, {.config = config}).engine;
    expect(torch::equal(parameters_of(*engine), expected), source + ": every value is there");
  }
}
TEST(Memory, WhileWeightsAreLoadedIsAShardAndAFewTensors) {
  char folder[] = "/tmp/gannet-loading-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  ranks::expect_all_succeed(run_ranks("loading", 4, {.environment = {{"FOLDER", folder}}}));
  std::filesystem::remove_all(folder);
}

// A process that may not have so much more: refused before anything is allocated, with what would do.
RANK_BODY(too_little) {
  auto model = std::make_shared<DeepImpl>();
  rlimit limit{};
  ::getrlimit(RLIMIT_DATA, &limit);
  std::ifstream status("/proc/self/status");
  int64_t data_kib = 0;
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmData:")) data_kib = std::atoll(line.c_str() + 7);
  limit.rlim_cur = static_cast<rlim_t>(data_kib * 1024 + (20 << 20));
  ::setrlimit(RLIMIT_DATA, &limit);
  const auto told = [&](const Dict& more) -> std::string {
    try {
      Dict config = config_with({{"bf16", Dict{{"enabled", true}}}});
      for (const auto& [key, value] : more.entries()) config[key] = value;
      gannet::initialize(model, {.config = config});
    } catch (const gannet::Error& error) {
      return std::string(error.code() == gannet::ErrorCode::kOutOfMemory ? "" : "another error: ") + error.what();
    }
    return "";
  };
  const std::string message = told({});
  for (const char* part : {"host memory that one process may take", " lack", "check_memory"})
    expect(message.find(part) != std::string::npos, std::string("'") + part + "' in: " + message);
  expect(alive() < 100 << 20, "nothing was allocated");
}
TEST(Memory, ThatIsTooLittleIsToldBeforehandWithWhatFits) { ranks::expect_all_succeed(run_ranks("too_little", 1)); }

}  // namespace
