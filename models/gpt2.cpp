#include <ATen/ops/addmm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <gannet/error.h>
#include <gannet/models/gpt2.h>
#include <torch/nn/init.h>

#include <cmath>

#include "common.h"

namespace gannet::models {
namespace {

// A linear layer with a weight of shape [in, out].
class Conv1D : public torch::nn::Module {
 public:
  Conv1D(int64_t in, int64_t out, double deviation) {
    const auto options = at::TensorOptions().dtype(c10::get_default_dtype());
    weight_ = register_parameter("weight", at::empty({in, out}, options));
    torch::nn::init::normal_(weight_, 0, deviation);
    bias_ = register_parameter("bias", at::zeros({out}, options));
  }
  Tensor forward(const Tensor& x) {
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = bias_.size(0);
    return at::addmm(bias_, x.reshape({-1, x.size(-1)}), weight_).view(shape);
  }

 private:
  Tensor weight_, bias_;
};

// The weights of residual projections start smaller, so that the sum of 2 n_layer of them keeps its
// scale.
double residual_deviation(const Gpt2Config& config) {
  return config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.n_layer));
}

class Gpt2Attention : public torch::nn::Module {
 public:
  Gpt2Attention(const Gpt2Config& config, int64_t layer) : heads_(config.n_head), dropout_(config.attn_pdrop) {
    if (config.scale_attn_weights) scale_ = 1 / std::sqrt(static_cast<double>(config.n_embd / config.n_head));
    if (config.scale_attn_by_inverse_layer_idx) scale_ /= static_cast<double>(layer + 1);
    c_attn_ = register_module("c_attn", std::make_shared<Conv1D>(config.n_embd, 3 * config.n_embd, config.initializer_range));
    c_proj_ = register_module("c_proj", std::make_shared<Conv1D>(config.n_embd, config.n_embd, residual_deviation(config)));
  }
  Tensor forward(const Tensor& x, const MaybeTensor& bias, KvCache* cache, size_t layer) {
    const auto parts = c_attn_->forward(x).chunk(3, -1);
    const Tensor query = split_heads(parts[0], heads_);
    Tensor key = split_heads(parts[1], heads_), value = split_heads(parts[2], heads_);
    if (cache) std::tie(key, value) = cache->append(layer, key, value);
    return c_proj_->forward(
        merge_heads(attention(query, key, value, bias, {.dropout = is_training() ? dropout_ : 0, .scale = scale_})));
  }

 private:
  int64_t heads_;
  double dropout_, scale_ = 1;
  std::shared_ptr<Conv1D> c_attn_, c_proj_;
};

class Gpt2Mlp : public torch::nn::Module {
 public:
  explicit Gpt2Mlp(const Gpt2Config& config) : activation_(config.activation_function) {
    c_fc_ = register_module("c_fc", std::make_shared<Conv1D>(config.n_embd, config.n_inner, config.initializer_range));
    c_proj_ = register_module("c_proj", std::make_shared<Conv1D>(config.n_inner, config.n_embd, residual_deviation(config)));
  }
  Tensor forward(const Tensor& x) { return c_proj_->forward(activated(activation_, c_fc_->forward(x))); }

 private:
  std::string activation_;
  std::shared_ptr<Conv1D> c_fc_, c_proj_;
};

}  // namespace

class Gpt2Block : public torch::nn::Module {
 public:
  Gpt2Block(const Gpt2Config& config, int64_t layer) : dropout_(config.resid_pdrop) {
    ln_1_ = register_module("ln_1", layer_norm(config.n_embd, config.layer_norm_epsilon));
    attn_ = register_module("attn", std::make_shared<Gpt2Attention>(config, layer));
    ln_2_ = register_module("ln_2", layer_norm(config.n_embd, config.layer_norm_epsilon));
    mlp_ = register_module("mlp", std::make_shared<Gpt2Mlp>(config));
  }
  Tensor forward(const Tensor& x, const MaybeTensor& bias, KvCache* cache, size_t layer) {
    const Tensor attended = x + dropped(attn_->forward(ln_1_->forward(x), bias, cache, layer), dropout_, is_training());
    return attended + dropped(mlp_->forward(ln_2_->forward(attended)), dropout_, is_training());
  }

 private:
  double dropout_;
  torch::nn::LayerNorm ln_1_{nullptr}, ln_2_{nullptr};
  std::shared_ptr<Gpt2Attention> attn_;
  std::shared_ptr<Gpt2Mlp> mlp_;
};

Gpt2Config Gpt2Config::from(const ModelConfig& json) {
  json.require_type({"gpt2"});
  const Gpt2Config other;
  Gpt2Config config;
  config.vocab_size = json.size("vocab_size", other.vocab_size);
  config.n_positions = json.size("n_positions", other.n_positions);
  config.n_embd = json.size("n_embd", other.n_embd);
  config.n_layer = json.size("n_layer", other.n_layer);
  config.n_head = json.size("n_head", other.n_head);
  config.n_inner = json.size("n_inner", 4 * config.n_embd);
  config.activation_function = json.text("activation_function", other.activation_function);
  config.layer_norm_epsilon = json.number("layer_norm_epsilon", other.layer_norm_epsilon);
  config.initializer_range = json.number("initializer_range", other.initializer_range);
  config.embd_pdrop = json.number("embd_pdrop", other.embd_pdrop);
  config.resid_pdrop = json.number("resid_pdrop", other.resid_pdrop);
  config.attn_pdrop = json.number("attn_pdrop", other.attn_pdrop);
  config.scale_attn_weights = json.flag("scale_attn_weights", other.scale_attn_weights);
  config.scale_attn_by_inverse_layer_idx = json.flag("scale_attn_by_inverse_layer_idx", other.scale_attn_by_inverse_layer_idx);
  require_activation(json, "activation_function", config.activation_function);
  if (config.n_embd % config.n_head != 0)
    json.refuse("n_head", "n_embd " + std::to_string(config.n_embd) + " is not a multiple of it");
  if (json.flag("add_cross_attention", false)) json.refuse("add_cross_attention", "this GPT-2 is only a decoder");
  if (!json.flag("tie_word_embeddings", true))
    json.refuse("tie_word_embeddings", "this GPT-2's output layer is its token embedding");
  return config;
}

Gpt2Impl::Gpt2Impl(const Gpt2Config& config) : config_(config) {
  require_multiple("Gpt2Config: n_embd", config_.n_embd, "n_head", config_.n_head);
  if (config_.n_inner == 0) config_.n_inner = 4 * config_.n_embd;
  const auto transformer = folder(*this, "transformer");
  wte_ = transformer->register_module("wte", embedding(config_.vocab_size, config_.n_embd, config_.initializer_range));
  wpe_ = transformer->register_module("wpe", embedding(config_.n_positions, config_.n_embd, config_.initializer_range));
  const auto h = folder(*transformer, "h");
  for (int64_t layer = 0; layer < config_.n_layer; ++layer)
    blocks_.push_back(h->register_module(std::to_string(layer), std::make_shared<Gpt2Block>(config_, layer)));
  ln_f_ = transformer->register_module("ln_f", layer_norm(config_.n_embd, config_.layer_norm_epsilon));
}

Tensor Gpt2Impl::embed(const Tensor& tokens, const Tensor& keep, int64_t total) {
  require_positions("GPT-2", total, config_.n_positions);
  const Tensor places = positions_of(tokens.size(1), total, keep, tokens.device());
  return dropped(wte_->forward(tokens) + wpe_->forward(places), config_.embd_pdrop, is_training());
}

std::vector<Layer> Gpt2Impl::layers() {
  const auto embedded = [this](const Tensor& tokens, const MaybeTensor& mask = {}) {
    const Tensor keep = as_keep(mask);
    const Tensor x = embed(tokens, keep, tokens.size(1));
    return std::pair(x, causal_bias(tokens.size(1), tokens.size(1), keep, 0, x.options()));
  };
  std::vector<Layer> list = {gannet::function("transformer.wte", {wte_.ptr(), wpe_.ptr()}, embedded)};
  for (size_t i = 0; i < blocks_.size(); ++i)
    list.push_back(layer_of("transformer.h." + std::to_string(i), blocks_[i],
                            [i](Gpt2Block& block, const Tensor& x, const MaybeTensor& bias) {
                              return std::pair(block.forward(x, bias, nullptr, i), bias);
                            }));
  list.push_back(layer_of("transformer.ln_f", ln_f_,
                          [](torch::nn::LayerNormImpl& norm, const Tensor& x, const MaybeTensor&) { return norm.forward(x); }));
  return list;
}

std::vector<Layer> Gpt2Impl::pipeline_layers() {
  std::vector<Layer> list = layers();
  list.push_back(gannet::function("lm_head", {wte_.ptr()}, [this](const Tensor& x) { return at::matmul(x, wte_->weight.t()); }));
  return list;
}

Tensor Gpt2Impl::pipeline_loss(const Tensor& logits, const Tensor& labels) const { return next_token_loss(logits, labels); }

Tensor Gpt2Impl::logits(const Tensor& tokens, const MaybeTensor& mask) {
  return at::matmul(run_layers(layers(), tokens, mask), wte_->weight.t());
}

Tensor Gpt2Impl::forward(const Tensor& tokens, const Tensor& labels, const MaybeTensor& mask) {
  return next_token_loss(logits(tokens, mask), labels);
}

Tensor Gpt2Impl::next_logits(const GenerationInput& input, KvCache& cache) {
  const int64_t count = input.tokens.size(1), total = count + (input.uses_cache ? cache.length() : 0);
  Tensor x = embed(input.tokens, input.mask, total);
  const MaybeTensor bias = causal_bias(count, total, input.mask, 0, x.options());
  for (size_t i = 0; i < blocks_.size(); ++i) x = blocks_[i]->forward(x, bias, input.uses_cache ? &cache : nullptr, i);
  return at::matmul(ln_f_->forward(x.select(1, -1)), wte_->weight.t());
}

PretrainedNames Gpt2Impl::pretrained_names() const {
  return {.base = "transformer",
          .ignored = {"*attn.bias", "*attn.masked_bias"},
          .tied = {{"lm_head.weight", "transformer.wte.weight"}}};
}

}  // namespace gannet::models
