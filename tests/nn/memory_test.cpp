// Memory that the transformer layer keeps for backward, counted by the allocator; options that keep
// less give the same gradients.
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "nn/reference.h"

namespace gannet::test {
namespace {

class Counting : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    if (bytes > 0 && ::posix_memalign(&memory, 64, bytes) != 0) throw std::bad_alloc();
    live += static_cast<int64_t>(::malloc_usable_size(memory));
    return {memory, memory, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* into, const void* from, size_t bytes) const override { std::memcpy(into, from, bytes); }

  static inline std::atomic<int64_t> live = 0;

 private:
  static void release(void* memory) {
    if (!memory) return;
    live -= static_cast<int64_t>(::malloc_usable_size(memory));
    ::free(memory);
  }
};

class TransformerLayerMemory : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    static Counting counting;
    before_ = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&counting, 200);
  }
  static void TearDownTestSuite() { c10::SetCPUAllocator(before_, 200); }
  static inline c10::Allocator* before_ = nullptr;
};

struct Options {
  bool is_pre_norm = true, gelu_checkpoint = false, is_invertible = false;
  double ratio = 0;
};
// The second layer's share in a stack of two, its output included, in batch * words * width
// numbers.
double kept(const Options& options) {
  constexpr int64_t kBatch = 2, kWords = 512, kWidth = 192;
  nn::TransformerLayerConfig config;
  config.hidden_size = kWidth, config.heads = 12;
  config.pre_layer_norm = options.is_pre_norm, config.gelu_checkpoint = options.gelu_checkpoint;
  config.normalize_invertible = options.is_invertible;
  config.attn_dropout_ratio = config.hidden_dropout_ratio = options.ratio;
  nn::TransformerLayer first(config), second(config);
  at::Tensor x = torch::randn({kBatch, kWords, kWidth});
  x = first(x);
  const int64_t before = Counting::live;
  x = second(x);
  return static_cast<double>(Counting::live - before) / (4.0 * kBatch * kWords * kWidth);
}

TEST_F(TransformerLayerMemory, IsWithinItsBars) {
  for (const bool is_pre_norm : {true, false}) {
    const double plain = kept({is_pre_norm}), gelu = kept({is_pre_norm, true}), both = kept({is_pre_norm, true, true});
    const double dropped = kept({.is_pre_norm = is_pre_norm, .ratio = 0.1});
    printf("%s: kept %.3f, gelu_checkpoint %.3f, normalize_invertible too %.3f, dropout 0.1 %.3f of B*T*d\n",
           is_pre_norm ? "pre-norm" : "post-norm", plain, gelu, both, dropped);
    EXPECT_LE(plain, 16);
    EXPECT_LE(gelu, 12);
    EXPECT_LE(both, 11);
    EXPECT_LE(dropped - plain, 0.1);
    EXPECT_GT(plain - gelu, 3.9) << "gelu_checkpoint saves what it says";
    EXPECT_GT(gelu - both, 0.9) << "normalize_invertible saves what it says";
  }
}

TEST_F(TransformerLayerMemory, NothingIsKeptWithoutABackward) {
  nn::TransformerLayerConfig config;
  config.hidden_size = 48, config.heads = 3;
  nn::TransformerLayer layer(config);
  const at::Tensor x = torch::randn({1, 64, 48});
  const torch::NoGradGuard no_grad;
  const int64_t before = Counting::live;
  const at::Tensor y = layer(x);
  EXPECT_LE(Counting::live - before, static_cast<int64_t>(y.nbytes()) + 256);
}

TEST(TransformerLayerOptions, GeluCheckpointHasTheSameBitsAndInvertibleTheSameNumbers) {
  for (const bool is_pre_norm : {true, false}) {
    const Problem of = problem(2, 40);
    auto call = call_of(is_pre_norm, 0.1);
    const auto found = [&] { return run(nn::run_layer, call, of.x, {}, of.parameters, of.gradient, torch::kFloat); };
    const Result plain = found();
    call.keeps_activated = false;
    expect_equal(found(), plain, "gelu_checkpoint");
    call.is_invertible = true;
    expect_close(found(), plain, 1e-5, "normalize_invertible");
  }
}

}  // namespace
}  // namespace gannet::test
