/// DeepSpeed's transformer layer (its training kernel) as a module: self-attention and a
/// feed-forward part with their norms and dropouts, and a hand-written backward. It keeps less for
/// backward than a composition of LibTorch's operators, and dropout uses no memory: masks are
/// recomputed from each element's position.
///
///   gannet::nn::TransformerLayerConfig config;
///   config.hidden_size = 768;
///   config.heads = 12;
///   config.attn_dropout_ratio = config.hidden_dropout_ratio = 0.1;
///   config.num_hidden_layers = 12;
///   gannet::nn::TransformerLayer layer(config);
///   y = layer(x, attention_mask);                        // [batch, tokens, hidden_size]
///
/// On the CPU it is computed in fp32 (in fp64 if the parameters are fp64), whatever the dtype of x;
/// on other devices it is a composition of LibTorch's operators with the same dropout
/// (docs/transformer_layer.md).
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/value.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace gannet::nn {

/// The keys of DeepSpeedTransformerConfig, with its defaults; -1 is "not set".
struct TransformerLayerConfig {
  int64_t batch_size = -1;           ///< ignored: nothing is allocated in advance
  int64_t hidden_size = -1;          ///< must be set; a multiple of heads
  int64_t intermediate_size = -1;    ///< not set: 4 * hidden_size
  int64_t heads = -1;                ///< must be set
  double attn_dropout_ratio = -1;    ///< dropout of attention's probabilities; not set: 0
  double hidden_dropout_ratio = -1;  ///< dropout of both branches before they are added; not set: 0
  int64_t num_hidden_layers = -1;    ///< number of layers in the model, for adjust_init_range
  double initializer_range = -1;     ///< standard deviation of the weights; not set: 0.02
  double layer_norm_eps = 1e-12;
  int64_t local_rank = -1;
  int64_t seed = -1;  ///< seed of dropout, mixed with a draw from the default generator
  bool fp16 = false;  ///< creates the parameters in fp16
  bool pre_layer_norm = true;
  bool normalize_invertible = false;  ///< norms keep their output instead of their input
  bool gelu_checkpoint = false;       ///< GELU's output is recomputed in backward
  /// attn_ow and output_w are initialised with initializer_range / sqrt(2 * num_hidden_layers) if
  /// local_rank is 0, as in DeepSpeed.
  bool adjust_init_range = true;
  bool attn_dropout_checkpoint = false;  ///< ignored: the probabilities are never kept
  bool stochastic_mode = false;          ///< ignored
  bool huggingface = false;              ///< the older name of return_tuple
  bool return_tuple = false;             ///< ignored: call forward_tuple() for a tuple
  bool training = true;
  /// "erf", as in BERT, or "tanh", the approximation that DeepSpeed's CUDA kernel computes.
  std::string gelu = "erf";
  /// Index of the layer in its model, which is part of dropout's counter. Layers have different
  /// masks even if it is not set.
  int64_t layer_id = 0;

  /// Throws Error(kConfig), which names the key, on unknown keys, wrong types and impossible
  /// values.
  static TransformerLayerConfig from_dict(const Dict& dictionary);
  /// Reads JSON in UTF-8, or in UTF-16 as DeepSpeed's own reader expects it.
  static TransformerLayerConfig from_json_file(const std::string& path);
  /// Throws Error(kConfig) for values that no layer can have.
  void check() const;
  int64_t intermediate() const { return intermediate_size > 0 ? intermediate_size : 4 * hidden_size; }
};

class TransformerLayerImpl : public torch::nn::Cloneable<TransformerLayerImpl> {
 public:
  /// `initial_weights` and `initial_biases` are copied. Each is empty or has eight tensors, in the
  /// order of DeepSpeed's tests: queries, keys, values, attention's output and its norm, the
  /// intermediate part, the output and its norm.
  explicit TransformerLayerImpl(const TransformerLayerConfig& config, const std::vector<at::Tensor>& initial_weights = {},
                                const std::vector<at::Tensor>& initial_biases = {});

  /// hidden_states: [batch, tokens, hidden_size]. attention_mask: four dimensions that expand to
  /// [batch, heads, tokens, tokens], such as BERT's [batch, 1, 1, tokens]. A numeric mask is added
  /// to the scores; in a boolean mask, true marks the positions that may be attended to. The mask
  /// gets no gradient.
  at::Tensor forward(const at::Tensor& hidden_states, const at::Tensor& attention_mask = {});
  std::tuple<at::Tensor> forward_tuple(const at::Tensor& hidden_states, const at::Tensor& attention_mask = {});

  const TransformerLayerConfig& config() const { return config_; }
  int64_t layer_id() const { return config_.layer_id; }
  /// Makes and initialises the parameters. clone() calls it, and returns a layer with the same
  /// config, values and mode.
  void reset() override;
  void reset_parameters();

  at::Tensor attn_qkvw, attn_qkvb;  // [3 hidden, hidden], [3 hidden]: queries, keys, values
  at::Tensor attn_ow, attn_ob;      // [hidden, hidden], [hidden]
  at::Tensor attn_nw, attn_nb;      // [hidden]: the norm between the two parts
  at::Tensor inter_w, inter_b;      // [intermediate, hidden], [intermediate]
  at::Tensor output_w, output_b;    // [hidden, intermediate], [hidden]
  at::Tensor norm_w, norm_b;        // [hidden]: the first norm of a pre-norm layer, the last one of a post-norm layer

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())})

 private:
  void copy_initial(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases);
  TransformerLayerConfig config_;
};
TORCH_MODULE(TransformerLayer);

}  // namespace gannet::nn
