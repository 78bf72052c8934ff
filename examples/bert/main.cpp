// Trains a small BERT of transformer layers (gannet/nn/transformer_layer.h) on the quickstart's
// text. As in the gpt2 example, each byte is a token.
//
//   bert [steps] [ds_config.json]
//   gannet run --num_procs 2 bert 600
//
// Of 100 tokens, 15 are targets: 12 are replaced by the mask, 1 or 2 by a random token, and the rest
// stay as they are (Devlin et al. 2018). At the end the program prints a line of held-out text with
// its gaps filled. 600 steps teach the model little more than token frequencies; learning to use a
// gap's context takes many more steps.
#include <gannet/gannet.h>
#include <gannet/nn/transformer_layer.h>
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <vector>

#include "data.h"

namespace {

constexpr int64_t kMask = 256, kWords = 257, kLength = 128, kWidth = 128, kHeads = 4, kLayers = 4;

struct BertImpl : torch::nn::Module {
  BertImpl() {
    words = register_module("words", torch::nn::Embedding(kWords, kWidth));
    places = register_module("places", torch::nn::Embedding(kLength, kWidth));
    gannet::nn::TransformerLayerConfig config;
    config.hidden_size = kWidth;
    config.heads = kHeads;
    config.num_hidden_layers = kLayers;
    config.attn_dropout_ratio = config.hidden_dropout_ratio = 0.1;
    for (config.layer_id = 0; config.layer_id < kLayers; ++config.layer_id)
      layers.push_back(register_module("layer" + std::to_string(config.layer_id), gannet::nn::TransformerLayer(config)));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    const torch::NoGradGuard no_grad;
    words->weight.normal_(0, 0.05);
    places->weight.normal_(0, 0.05);
  }

  /// `inputs` is [batch, length]. Returns the logits or, if there are targets, the mean loss over
  /// the targets that are not -100.
  at::Tensor forward(const at::Tensor& inputs, const at::Tensor& targets) {
    at::Tensor x = words(inputs) + places(torch::arange(inputs.size(1), inputs.options()));
    for (auto& layer : layers) x = layer(x);
    const at::Tensor logits = torch::matmul(norm(x), words->weight.t());
    if (!targets.defined()) return logits;
    return torch::cross_entropy_loss(logits.view({-1, kWords}).to(torch::kFloat), targets.view({-1}));
  }

  torch::nn::Embedding words{nullptr}, places{nullptr};
  std::vector<gannet::nn::TransformerLayer> layers;
  torch::nn::LayerNorm norm{nullptr};
};

struct MaskedBatch {
  at::Tensor inputs, targets;  // [batch, length]; -100 where there is no target
  MaskedBatch to(const at::Device& device) const { return {inputs.to(device), targets.to(device)}; }
};
MaskedBatch masked(const at::Tensor& text) {
  const at::Tensor chance = torch::rand(text.sizes());
  const at::Tensor is_asked = chance < 0.15;
  at::Tensor inputs = torch::where(chance < 0.12, torch::full_like(text, kMask), text);
  inputs = torch::where((chance >= 0.12).logical_and(chance < 0.135), torch::randint(256, text.sizes()), inputs);
  return {inputs, torch::where(is_asked, text, torch::full_like(text, -100))};
}

std::string line_of(const at::Tensor& words) {
  std::string line;
  for (int64_t i = 0; i < words.numel(); ++i) {
    const auto word = words[i].item<int64_t>();
    line += word == kMask ? '_' : word >= 32 && word < 127 ? static_cast<char>(word) : ' ';
  }
  return line;
}

int train(int64_t steps, const std::string& config) {
  const auto [text, unseen] = gpt2::Tokens::from_this_machine().split(0.1);
  torch::manual_seed(1);
  auto engine = gannet::initialize(std::make_shared<BertImpl>(), {.config = config}).engine;
  const int64_t batch = engine->train_micro_batch_size_per_gpu(), ranks = engine->world_size(), rank = engine->rank();
  torch::manual_seed(100 + rank);  // each rank masks and drops different tokens

  double sum = 0;
  for (int64_t step = 0; step < steps; ++step) {
    const MaskedBatch sample = masked(text.batch((step * ranks + rank) * batch, batch, kLength).inputs).to(engine->device());
    const at::Tensor loss = engine->forward(sample.inputs, sample.targets);
    engine->backward(loss);
    engine->step();
    sum += loss.item<double>();
    if ((step + 1) % 50 == 0 || step + 1 == steps) {
      const double mean = engine->mean(sum / static_cast<double>(step % 50 + 1));
      if (rank == 0) std::cout << "step " << step + 1 << ": loss " << mean << std::endl;
      sum = 0;
    }
  }

  const torch::NoGradGuard no_grad;
  engine->eval();
  torch::manual_seed(2);
  constexpr int64_t kRounds = 8;
  double loss = 0;
  for (int64_t round = 0; round < kRounds; ++round) {
    const MaskedBatch sample = masked(unseen.batch(round * batch, batch, kLength).inputs).to(engine->device());
    loss += engine->forward(sample.inputs, sample.targets).item<double>() / kRounds;
  }
  const at::Tensor line = unseen.batch(3, 1, kLength).inputs, gaps = masked(line).inputs;
  const at::Tensor logits = engine->forward(gaps.to(engine->device()), at::Tensor());
  const at::Tensor guess = torch::where(gaps == kMask, logits.narrow(-1, 0, 256).argmax(-1).cpu(), line);
  if (rank == 0)
    std::cout << "loss on text it has not seen: " << loss << " (by the words' frequencies alone: " << unseen.unigram_entropy()
              << ")\ngaps:   " << line_of(gaps[0]) << "\nfilled: " << line_of(guess[0]) << std::endl;
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::atoll(arguments[1]) < 1) {
    std::cout << "usage: bert [steps, default 600] [ds_config.json]\n";
    return arguments[1] == std::string("--help") ? 0 : 2;
  }
  try {
    return train(count > 1 ? std::atoll(arguments[1]) : 600, count > 2 ? arguments[2] : BERT_SOURCE_DIR "/ds_config.json");
  } catch (const gannet::Error& error) {
    std::cerr << error.what() << '\n';
    return error.exit_code();
  }
}
