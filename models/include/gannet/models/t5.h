/// T5 (Raffel et al. 2020; 1.1, Flan-T5 and mT5 with gated feed-forward layers): an encoder and a
/// decoder with relative positions. It has the names of Hugging Face's T5ForConditionalGeneration:
/// shared.weight, encoder.block.0.layer.0.SelfAttention.q.weight, ...
///
///   auto model = gannet::from_pretrained<gannet::models::T5>("t5-small", {.config = "ds_config.json"});
///   at::Tensor loss = model->forward(tokens, labels, mask);    // [B, L]; -100 does not count; the decoder reads them shifted
///   auto texts = gannet::generate(model, sources, {.max_new_tokens = 60, .stop_tokens = {1}, .num_beams = 4});
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
#include <utility>
#include <vector>

namespace gannet::models {

/// The names and defaults of Hugging Face's T5Config.
struct T5Config {
  int64_t vocab_size = 32128;
  int64_t d_model = 512;
  int64_t d_kv = 64;
  int64_t d_ff = 2048;
  int64_t num_layers = 6;
  int64_t num_decoder_layers = 0;  ///< 0 means num_layers
  int64_t num_heads = 8;
  int64_t relative_attention_num_buckets = 32;
  int64_t relative_attention_max_distance = 128;
  double dropout_rate = 0.1;
  double layer_norm_epsilon = 1e-6;
  double initializer_factor = 1;
  std::string dense_act_fn = "relu";
  bool is_gated_act = false;
  /// Whether the output layer is the token embedding. If a config.json has tie_word_embeddings
  /// false (T5 1.1, Flan-T5), the output layer has its own weight.
  bool tie_word_embeddings = true;
  bool scale_decoder_outputs = true;  ///< whether they are multiplied by 1 / sqrt(d_model) before the output layer
  int64_t decoder_start_token_id = 0;
  int64_t pad_token_id = 0;

  static T5Config from(const ModelConfig& json);
};

class T5Block;
class RmsNormImpl;

/// The encoder's output, and the keys and values: those of the decoder's tokens, and those of the
/// encoder's output, which are computed once.
struct T5Cache {
  KvCache decoder;
  at::Tensor encoded;                                      // shape [B, S, d_model]
  at::Tensor keep;                                         // shape [B, S], or undefined
  std::vector<std::pair<at::Tensor, at::Tensor>> crossed;  // one pair for each layer
  void reorder(const at::Tensor& rows);
};

class T5Impl : public torch::nn::Module {
 public:
  using Config = T5Config;
  using Cache = T5Cache;

  explicit T5Impl(const T5Config& config);

  /// Returns the mean cross entropy of the labels. mask: [B, T] for `tokens`, 0 for padding.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& labels, const std::optional<at::Tensor>& mask = {});
  /// Returns [B, L, vocabulary]: the logits of the token that follows each of the decoder's tokens.
  at::Tensor logits(const at::Tensor& tokens, const at::Tensor& decoder_tokens, const std::optional<at::Tensor>& mask = {});
  /// Returns the decoder's input for these labels: the start token, then all labels but the last,
  /// with padding instead of -100.
  at::Tensor shifted(const at::Tensor& labels) const;

  int64_t encode(const GenerationInput& prompts, T5Cache& cache);
  at::Tensor next_logits(const GenerationInput& input, T5Cache& cache);
  /// The encoder and the decoder without the output layer; they map (tokens, decoder_tokens) or
  /// (tokens, decoder_tokens, mask) to [B, L, d_model].
  std::vector<Layer> layers();
  /// For a pipeline (gannet/pipe.h): all layers, from (tokens, labels) or (tokens, labels, mask) to
  /// the logits, and their loss. The decoder also reads the labels.
  std::vector<Layer> pipeline_layers();
  at::Tensor pipeline_loss(const at::Tensor& logits, const at::Tensor& labels) const;
  PretrainedNames pretrained_names() const;
  const T5Config& config() const { return config_; }

 private:
  at::Tensor embed(const at::Tensor& tokens);
  at::Tensor head(const at::Tensor& x);

  T5Config config_;
  torch::nn::Embedding shared_{nullptr};
  std::vector<std::shared_ptr<T5Block>> encoder_, decoder_;
  std::shared_ptr<RmsNormImpl> encoder_norm_, decoder_norm_;
  torch::nn::Linear lm_head_{nullptr};  // null if it is tied to the embedding
};
TORCH_MODULE(T5);

}  // namespace gannet::models
