// A backward in two passes against a single backward: CPU time, the graph walk, and the bytes that
// are live between the passes. One thread; transformer blocks without dropout.
//
//   build/bench/split_bench [--width 512] [--blocks 4] [--batch 4] [--length 128] [--rounds 15]
#include <gannet/gannet.h>
#include <malloc.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <unordered_set>
#include <vector>

#include "grads/split_backward.h"

namespace {

using at::Tensor;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(int64_t width) : heads(width / 64) {
    first = register_module("first", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    second = register_module("second", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    qkv = register_module("qkv", torch::nn::Linear(width, 3 * width));
    out = register_module("out", torch::nn::Linear(width, width));
    up = register_module("up", torch::nn::Linear(width, 4 * width));
    down = register_module("down", torch::nn::Linear(4 * width, width));
  }
  Tensor forward(const Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    const auto parts = qkv(first(x)).view({batch, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    const Tensor y = x + out(mixed.transpose(1, 2).reshape({batch, length, width}));
    return y + down(torch::gelu(up(second(y))));
  }
  int64_t heads;
  torch::nn::LayerNorm first{nullptr}, second{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
};

double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

double live_mib() {
  const auto all = mallinfo2();
  return static_cast<double>(all.uordblks + all.hblkhd) / (1 << 20);
}

size_t nodes_of(torch::autograd::Node* root) {
  std::unordered_set<torch::autograd::Node*> seen{root};
  std::vector<torch::autograd::Node*> left{root};
  while (!left.empty()) {
    torch::autograd::Node* const node = left.back();
    left.pop_back();
    for (const auto& edge : node->next_edges())
      if (edge.function && seen.insert(edge.function.get()).second) left.push_back(edge.function.get());
  }
  return seen.size();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  int64_t width = 512, blocks = 4, batch = 4, length = 128;
  int rounds = 15;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const int64_t value = std::stoll(argv[i + 1]);
    if (name == "--width") width = value;
    if (name == "--blocks") blocks = value;
    if (name == "--batch") batch = value;
    if (name == "--length") length = value;
    if (name == "--rounds") rounds = static_cast<int>(value);
  }
  mallopt(M_MMAP_THRESHOLD, 1 << 16);
  torch::set_num_threads(1);
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int64_t i = 0; i < blocks; ++i) net->push_back(BlockImpl(width));
  const Tensor x = torch::randn({batch, length, width}), gradient = torch::randn_like(x);
  std::vector<double> whole, inputs, weights, both;
  double before = 0, after_forward = 0, between = 0;
  size_t nodes = 0;
  for (int round = 0; round <= rounds; ++round) {
    for (const bool splits : {false, true}) {
      net->zero_grad(true);
      Tensor input = x.clone().requires_grad_(true);
      before = live_mib();
      Tensor output = net->forward(input);
      const torch::autograd::edge_list roots{torch::autograd::impl::gradient_edge(output)};
      if (nodes == 0) nodes = nodes_of(roots[0].function.get());
      after_forward = live_mib() - before;
      output.reset();
      const double start = cpu_ms();
      if (!splits) {
        torch::autograd::Engine::get_default_engine().execute(roots, {gradient}, false, false, true);
        if (round > 0) whole.push_back(cpu_ms() - start);
        continue;
      }
      gannet::SplitBackward split;
      split.input_pass(roots, {gradient}, {torch::autograd::impl::gradient_edge(input)});
      const double middle = cpu_ms();
      between = live_mib() - before;
      const double again = cpu_ms();
      split.weight_pass();
      if (round == 0) continue;
      inputs.push_back(middle - start);
      weights.push_back(cpu_ms() - again);
      both.push_back((inputs.back() + weights.back()) / whole.back());
    }
  }
  // The first pass of a graph without matrix products: what remains is the walk and the hooks.
  std::vector<double> walk;
  Tensor small = torch::ones({1}).requires_grad_(true);
  for (int round = 0; round < rounds; ++round) {
    Tensor y = small * 1;
    for (int i = 0; i < 2000; ++i) y = y.view({1});
    const torch::autograd::edge_list roots{torch::autograd::impl::gradient_edge(y)};
    double start = cpu_ms();
    torch::autograd::Engine::get_default_engine().execute(roots, {torch::ones({1})}, true, false, false,
                                                          {torch::autograd::impl::gradient_edge(small)});
    const double plain = cpu_ms() - start;
    gannet::SplitBackward split;
    start = cpu_ms();
    split.input_pass(roots, {torch::ones({1})}, {torch::autograd::impl::gradient_edge(small)});
    walk.push_back((cpu_ms() - start - plain) / 2.0);  // us per node; 2,000 nodes
  }
  std::printf("%ld blocks of width %ld, %ld x %ld tokens, %zu nodes, %d rounds, CPU time of one thread\n", blocks, width, batch,
              length, nodes, rounds);
  std::printf("one backward %.1f ms; input pass %.1f, weight pass %.1f: both over one, median of the rounds' ratios %.3f\n",
              median(whole), median(inputs), median(weights), median(both));
  std::printf("the walk and what it prepares: %.2f us a node\n", median(walk));
  std::printf("live after forward %.1f MiB, after the input pass %.1f MiB: %.2f\n", after_forward, between,
              between / after_forward);
}
