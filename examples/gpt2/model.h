// GPT-2 (Radford et al. 2019) with the parameter names and layouts of Hugging Face's
// GPT2LMHeadModel, so that its weight files load unchanged: transformer.wte.weight,
// transformer.h.0.attn.c_attn.weight [in, out] ... The output layer is tied to wte.
//
//   gpt2::Gpt model(gpt2::GptOptions{.layers = 4, .width = 256});
//   at::Tensor loss = model->forward(tokens, targets);   // [B, T] int64 each -> scalar
//
// The model is an ordinary torch::nn::Module, independent of Gannet's engine. layers() defines
// where it may be cut, so that one line of the config enables recomputation of activations.
#pragma once

#include <gannet/layers.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <string>
#include <vector>

#include "ops.h"

namespace gpt2 {

/// The comments give the names in Hugging Face's config.json.
struct GptOptions {
  int64_t vocabulary = 256;               // vocab_size
  int64_t positions = 128;                // n_positions
  int64_t width = 256;                    // n_embd
  int64_t layers = 4;                     // n_layer
  int64_t heads = 4;                      // n_head
  int64_t inner = 0;                      // n_inner; 0: four times the width
  std::string activation = "gelu_new";    // activation_function
  double epsilon = 1e-5;                  // layer_norm_epsilon
  double initializer_range = 0.02;        // initializer_range
  double embedding_dropout = 0;           // embd_pdrop
  double residual_dropout = 0;            // resid_pdrop
  double attention_dropout = 0;           // attn_pdrop
  bool scale_attention = true;            // scale_attn_weights
  bool scale_attention_by_layer = false;  // scale_attn_by_inverse_layer_idx
  bool plain_operators = false;           // see Operators; not a property of the weights
};

// A linear layer whose weight is stored as [in, out].
class Conv1DImpl : public torch::nn::Module {
 public:
  Conv1DImpl(int64_t in, int64_t out, double deviation, Operators operators);
  at::Tensor forward(const at::Tensor& x);  // [N, in] -> [N, out]

 private:
  Operators operators_;
  at::Tensor weight_, bias_;
};
TORCH_MODULE(Conv1D);

class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(const GptOptions& options, int64_t layer);
  at::Tensor forward(const at::Tensor& x, int64_t batch);  // [B*T, width] -> [B*T, width]

 private:
  Operators operators_;
  int64_t heads_;
  double dropout_, scale_;
  Conv1D c_attn_, c_proj_;
};
TORCH_MODULE(Attention);

class MlpImpl : public torch::nn::Module {
 public:
  explicit MlpImpl(const GptOptions& options);
  at::Tensor forward(const at::Tensor& x);

 private:
  Operators operators_;
  std::string activation_;
  Conv1D c_fc_, c_proj_;
};
TORCH_MODULE(Mlp);

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const GptOptions& options, int64_t layer);
  at::Tensor forward(const at::Tensor& x);  // [B, T, width] -> the same

 private:
  double dropout_;
  torch::nn::LayerNorm ln_1_;
  Attention attn_;
  torch::nn::LayerNorm ln_2_;
  Mlp mlp_;
};
TORCH_MODULE(Block);

class TransformerImpl : public torch::nn::Module {
 public:
  explicit TransformerImpl(const GptOptions& options);
  /// The layers map [B, T] int64 to [B, T, width]. They refer to this module and must not outlive
  /// it.
  std::vector<gannet::Layer> layers();
  at::Tensor forward(const at::Tensor& tokens) { return gannet::run_layers(layers(), tokens).flatten(0, 1); }  // [B*T, width]
  const at::Tensor& token_embedding() const { return wte_->weight; }
  std::shared_ptr<torch::nn::Module> words() const { return wte_.ptr(); }

 private:
  at::Tensor embed(const at::Tensor& tokens);  // [B, T] int64 -> [B, T, width]

  GptOptions options_;
  torch::nn::Embedding wte_, wpe_;
  torch::nn::ModuleList h_;
  torch::nn::LayerNorm ln_f_;
};
TORCH_MODULE(Transformer);

class GptImpl : public torch::nn::Module {
 public:
  /// Initializes the weights as Hugging Face does: normal with initializer_range, divided by sqrt(2
  /// layers) for the residual projections; the biases are zero. Uses LibTorch's default generator.
  /// Throws gannet::Error: kArgument for impossible sizes, kUnsupported for another activation.
  explicit GptImpl(const GptOptions& options);

  /// Returns the mean cross entropy over all B*T targets, in fp32.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets);
  /// Returns the logits of the next token, from the last position: [B, T] -> [B, vocabulary].
  at::Tensor forward(const at::Tensor& tokens);
  at::Tensor logits(const at::Tensor& tokens);  // [B, T] -> [B, T, vocabulary]
  /// All layers except the output layer, which is fused with the loss.
  std::vector<gannet::Layer> layers() { return transformer_->layers(); }
  /// All layers for a pipeline, in which the last stage also holds the output layer's weight, and
  /// the loss of what they return: [B, T, width], [B, T] int64 -> scalar.
  std::vector<gannet::Layer> pipeline_layers();
  at::Tensor pipeline_loss(const at::Tensor& hidden, const at::Tensor& targets);
  const GptOptions& options() const { return options_; }

 private:
  GptOptions options_;
  Transformer transformer_;
};
TORCH_MODULE(Gpt);

}  // namespace gpt2
