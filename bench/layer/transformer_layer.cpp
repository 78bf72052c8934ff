// Forward and backward of the transformer layer against a composition of LibTorch's operators, each
// without dropout and with 0.1 in attention and in both branches: CPU time of alternating rounds,
// width 768, 12 heads, 2 sequences of 512 tokens, fp32.
//
//   transformer_layer [--rounds 15] [--threads 1]
#include <gannet/nn/transformer_layer.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

namespace {

constexpr int64_t kBatch = 2, kWords = 512, kWidth = 768, kHeads = 12;

double cpu_ms() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A pre-norm layer as a user would write it. LibTorch's fused attention has no dropout on the CPU,
// so with dropout LibTorch composes attention from operators as well.
struct CompositionImpl : torch::nn::Module {
  explicit CompositionImpl(double ratio) : ratio(ratio) {
    first_norm = register_module("first_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    second_norm = register_module("second_norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    qkv = register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth));
    out = register_module("out", torch::nn::Linear(kWidth, kWidth));
    up = register_module("up", torch::nn::Linear(kWidth, 4 * kWidth));
    down = register_module("down", torch::nn::Linear(4 * kWidth, kWidth));
  }
  at::Tensor forward(at::Tensor x) {
    const auto parts = qkv(first_norm(x)).view({kBatch, kWords, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor attended = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, ratio);
    x = x + torch::dropout(out(attended.transpose(1, 2).reshape(x.sizes())), ratio, true);
    return x + torch::dropout(down(torch::gelu(up(second_norm(x)))), ratio, true);
  }
  double ratio;
  torch::nn::LayerNorm first_norm{nullptr}, second_norm{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
};
TORCH_MODULE(Composition);

gannet::nn::TransformerLayer ours(double ratio) {
  gannet::nn::TransformerLayerConfig config;
  config.hidden_size = kWidth, config.heads = kHeads;
  config.attn_dropout_ratio = config.hidden_dropout_ratio = ratio;
  return gannet::nn::TransformerLayer(config);
}

template <class Layer>
double round_of(Layer& layer, const at::Tensor& x) {
  for (auto& parameter : layer->parameters()) parameter.mutable_grad().reset();
  at::Tensor input = x.detach().requires_grad_();
  const double start = cpu_ms();
  const at::Tensor y = layer(input);
  y.backward(x);
  return cpu_ms() - start;
}

}  // namespace

int main(int count, char** arguments) {
  int rounds = 15, threads = 1;
  for (int i = 1; i + 1 < count; i += 2) {
    if (std::string(arguments[i]) == "--rounds") rounds = std::stoi(arguments[i + 1]);
    if (std::string(arguments[i]) == "--threads") threads = std::stoi(arguments[i + 1]);
  }
  at::set_num_threads(threads);
  torch::manual_seed(0);
  auto plain = ours(0), dropped = ours(0.1);
  Composition composed(0.0), composed_dropped(0.1);
  const at::Tensor x = torch::randn({kBatch, kWords, kWidth});
  std::vector<double> times[4], dropout, against, composed_dropout;
  for (int round = -1; round < rounds; ++round) {
    const double t[4] = {round_of(plain, x), round_of(composed, x), round_of(dropped, x), round_of(composed_dropped, x)};
    if (round < 0) continue;  // warm-up
    for (int i = 0; i < 4; ++i) times[i].push_back(t[i]);
    against.push_back(t[0] / t[1]);
    dropout.push_back(t[2] / t[0]);
    composed_dropout.push_back(t[3] / t[1]);
    std::printf("round %d: layer %.1f ms, composition %.1f; with dropout %.1f, %.1f\n", round + 1, t[0], t[1], t[2], t[3]);
  }
  std::printf(
      "{\"layer_ms\": %.1f, \"composition_ms\": %.1f, \"layer_dropout_ms\": %.1f, \"composition_dropout_ms\": %.1f, "
      "\"composition_dropout_ratio\": %.3f, \"dropout_ratio\": %.3f, \"ratio\": %.3f}\n",
      median(times[0]), median(times[1]), median(times[2]), median(times[3]), median(composed_dropout), median(dropout),
      median(against));
}
