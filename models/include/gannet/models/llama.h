/// Llama (Touvron et al. 2023; Llama 2 and 3), and Qwen2 and Mistral, which are the same model with
/// biases on query, key and value, or with a sliding window. It has the names of Hugging Face's
/// LlamaForCausalLM: model.layers.0.self_attn.q_proj.weight, lm_head.weight.
///
///   auto model = gannet::from_pretrained<gannet::models::Llama>("Llama-3.2-1B", {.config = "ds_config.json"});
///   at::Tensor loss = model->forward(tokens, labels);        // each label is at its own token; -100 does not count
///
/// model_type in config.json selects the model: llama, qwen2 or mistral.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/generate.h>
#include <gannet/layers.h>
#include <gannet/model_config.h>
#include <gannet/pretrained.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gannet::models {

/// The rotation of query and key by their positions (Su et al. 2021).
struct RopeConfig {
  double theta = 10000;
  std::string type = "default";  ///< "default", "linear" or "llama3"
  double factor = 1;             ///< for linear and llama3: ratio of the context length to the length trained on
  // For llama3: wavelengths above original / low_freq_factor are stretched by factor, those below
  // original / high_freq_factor are unchanged, and between them the stretch changes smoothly.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;
};

/// The names and defaults of Hugging Face's LlamaConfig, Qwen2Config and MistralConfig.
struct LlamaConfig {
  int64_t vocab_size = 32000;
  int64_t hidden_size = 4096;
  int64_t intermediate_size = 11008;
  int64_t num_hidden_layers = 32;
  int64_t num_attention_heads = 32;
  int64_t num_key_value_heads = 0;  ///< 0 means as many as num_attention_heads
  int64_t head_dim = 0;             ///< 0 means hidden_size / num_attention_heads
  int64_t max_position_embeddings = 2048;
  std::string hidden_act = "silu";
  double rms_norm_eps = 1e-6;
  double initializer_range = 0.02;
  double attention_dropout = 0;
  bool qkv_bias = false;  ///< set for Qwen2; Llama's attention_bias sets this and o_bias
  bool o_bias = false;
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  std::vector<int64_t> sliding_windows;  ///< per layer: number of last tokens a token sees, itself included; 0 or no entry: all
  RopeConfig rope;

  static LlamaConfig from(const ModelConfig& json);
};

class LlamaLayer;
class RmsNormImpl;

class LlamaImpl : public torch::nn::Module {
 public:
  using Config = LlamaConfig;
  using Cache = KvCache;
  static constexpr bool kShiftsLabels = true;  ///< a label is predicted by the logits of the token before it

  explicit LlamaImpl(const LlamaConfig& config);

  at::Tensor forward(const at::Tensor& tokens) { return logits(tokens, {}); }
  /// Returns the mean cross entropy of all tokens but the first, each predicted by the logits before
  /// it. mask: [B, T], 0 for padding.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& labels, const std::optional<at::Tensor>& mask = {});
  at::Tensor logits(const at::Tensor& tokens, const std::optional<at::Tensor>& mask);
  at::Tensor next_logits(const GenerationInput& input, KvCache& cache);
  /// All layers except the output layer; they map (tokens) or (tokens, mask) to [B, T,
  /// hidden_size].
  std::vector<Layer> layers();
  /// For a pipeline (gannet/pipe.h): all layers, from (tokens) or (tokens, mask) to the logits, and
  /// their loss.
  std::vector<Layer> pipeline_layers();
  at::Tensor pipeline_loss(const at::Tensor& logits, const at::Tensor& labels) const;
  int64_t positions() const { return config_.max_position_embeddings; }
  PretrainedNames pretrained_names() const;
  const LlamaConfig& config() const { return config_; }

 private:
  at::Tensor head(const at::Tensor& x);

  LlamaConfig config_;
  torch::nn::Embedding embed_tokens_{nullptr};
  std::vector<std::shared_ptr<LlamaLayer>> layers_;
  std::shared_ptr<RmsNormImpl> norm_;
  torch::nn::Linear lm_head_{nullptr};  // null if it is tied to the embedding
};
TORCH_MODULE(Llama);

}  // namespace gannet::models
