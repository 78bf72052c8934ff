/// GPT-2 (Radford et al. 2019), with the names of Hugging Face's GPT2LMHeadModel: transformer.wte.weight,
/// transformer.h.0.attn.c_attn.weight [in, out], ... The output layer is the token embedding.
///
///   auto model = gannet::from_pretrained<gannet::models::Gpt2>("gpt2-folder");
///   at::Tensor logits = model->forward(tokens);              // [B, T] int64 -> [B, T, vocabulary]
///   at::Tensor loss = model->forward(tokens, labels);        // each label is at its own token; -100 does not count
///   auto texts = gannet::generate(model, prompts, {.max_new_tokens = 50});
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/generate.h>
#include <gannet/layers.h>
#include <gannet/model_config.h>
#include <gannet/pretrained.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gannet::models {

/// The names and defaults of Hugging Face's GPT2Config.
struct Gpt2Config {
  int64_t vocab_size = 50257;
  int64_t n_positions = 1024;
  int64_t n_embd = 768;
  int64_t n_layer = 12;
  int64_t n_head = 12;
  int64_t n_inner = 0;  ///< 0 means four times n_embd
  std::string activation_function = "gelu_new";
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  double embd_pdrop = 0.1;
  double resid_pdrop = 0.1;
  double attn_pdrop = 0.1;
  bool scale_attn_weights = true;
  bool scale_attn_by_inverse_layer_idx = false;

  static Gpt2Config from(const ModelConfig& json);
};

class Gpt2Block;

class Gpt2Impl : public torch::nn::Module {
 public:
  using Config = Gpt2Config;
  using Cache = KvCache;
  static constexpr bool kShiftsLabels = true;  ///< a label is predicted by the logits of the token before it

  explicit Gpt2Impl(const Gpt2Config& config);

  at::Tensor forward(const at::Tensor& tokens) { return logits(tokens, {}); }
  /// Returns the mean cross entropy of all tokens but the first, each predicted by the logits before
  /// it. mask: [B, T], 0 for padding.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& labels, const std::optional<at::Tensor>& mask = {});
  at::Tensor logits(const at::Tensor& tokens, const std::optional<at::Tensor>& mask);
  at::Tensor next_logits(const GenerationInput& input, KvCache& cache);
  /// All layers except the output layer; they map (tokens) or (tokens, mask) to [B, T, n_embd].
  std::vector<Layer> layers();
  /// For a pipeline (gannet/pipe.h): all layers, from (tokens) or (tokens, mask) to the logits, and
  /// their loss.
  std::vector<Layer> pipeline_layers();
  at::Tensor pipeline_loss(const at::Tensor& logits, const at::Tensor& labels) const;
  int64_t positions() const { return config_.n_positions; }
  PretrainedNames pretrained_names() const;
  const Gpt2Config& config() const { return config_; }

 private:
  at::Tensor embed(const at::Tensor& tokens, const at::Tensor& keep, int64_t total);

  Gpt2Config config_;
  torch::nn::Embedding wte_{nullptr}, wpe_{nullptr};
  std::vector<std::shared_ptr<Gpt2Block>> blocks_;
  torch::nn::LayerNorm ln_f_{nullptr};
};
TORCH_MODULE(Gpt2);

}  // namespace gannet::models
