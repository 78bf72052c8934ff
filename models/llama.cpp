#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <gannet/error.h>
#include <gannet/models/llama.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <tuple>

#include "common.h"

namespace gannet::models {
namespace {

// The frequencies at which the pairs of a head's elements rotate: [head_dim / 2] fp32.
Tensor inverse_frequencies(const RopeConfig& rope, int64_t head_dim, at::Device device) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < head_dim; i += 2) {
    const double frequency = 1 / std::pow(rope.theta, static_cast<double>(i) / static_cast<double>(head_dim));
    double turned = rope.type == "linear" ? frequency / rope.factor : frequency;
    if (rope.type == "llama3") {
      const auto original = static_cast<double>(rope.original_max_position_embeddings);
      const double wavelength = 2 * std::numbers::pi / frequency;
      if (wavelength > original / rope.low_freq_factor) {
        turned = frequency / rope.factor;
      } else if (wavelength >= original / rope.high_freq_factor) {
        const double smooth = (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
        turned = (1 - smooth) * frequency / rope.factor + smooth * frequency;
      }
    }
    frequencies.push_back(static_cast<float>(turned));
  }
  return at::tensor(frequencies, at::kFloat).to(device);
}

// The cosines and sines for positions [B or 1, T]; each is [B or 1, 1, T, head_dim].
std::pair<Tensor, Tensor> rotations(const LlamaConfig& config, const Tensor& positions, at::ScalarType dtype) {
  const Tensor angles =
      positions.unsqueeze(-1).to(at::kFloat) * inverse_frequencies(config.rope, config.head_dim, positions.device());
  const Tensor both = at::cat({angles, angles}, -1).unsqueeze(1);
  return {both.cos().to(dtype), both.sin().to(dtype)};
}

Tensor rotated(const Tensor& x, const Tensor& cosines, const Tensor& sines) {
  const auto halves = x.chunk(2, -1);
  return x * cosines + at::cat({-halves[1], halves[0]}, -1) * sines;
}

// Values that all layers of a pass share.
struct SharedLayerInputs {
  MaybeTensor bias, window_bias;  // for layers that see all tokens, and for layers with a window
  Tensor cosines, sines;
};

class LlamaAttention : public torch::nn::Module {
 public:
  explicit LlamaAttention(const LlamaConfig& config)
      : heads_(config.num_attention_heads),
        key_heads_(config.num_key_value_heads),
        dropout_(config.attention_dropout),
        scale_(1 / std::sqrt(static_cast<double>(config.head_dim))) {
    const auto projection = [&](const char* name, int64_t in, int64_t out, bool bias) {
      return register_module(name, linear(in, out, bias, config.initializer_range));
    };
    q_proj_ = projection("q_proj", config.hidden_size, heads_ * config.head_dim, config.qkv_bias);
    k_proj_ = projection("k_proj", config.hidden_size, key_heads_ * config.head_dim, config.qkv_bias);
    v_proj_ = projection("v_proj", config.hidden_size, key_heads_ * config.head_dim, config.qkv_bias);
    o_proj_ = projection("o_proj", heads_ * config.head_dim, config.hidden_size, config.o_bias);
  }
  Tensor forward(const Tensor& x, const MaybeTensor& bias, const SharedLayerInputs& place, KvCache* cache, size_t layer) {
    const Tensor query = rotated(split_heads(q_proj_->forward(x), heads_), place.cosines, place.sines);
    Tensor key = rotated(split_heads(k_proj_->forward(x), key_heads_), place.cosines, place.sines);
    Tensor value = split_heads(v_proj_->forward(x), key_heads_);
    if (cache) std::tie(key, value) = cache->append(layer, key, value);
    return o_proj_->forward(
        merge_heads(attention(query, key, value, bias, {.dropout = is_training() ? dropout_ : 0, .scale = scale_})));
  }

 private:
  int64_t heads_, key_heads_;
  double dropout_, scale_;
  torch::nn::Linear q_proj_{nullptr}, k_proj_{nullptr}, v_proj_{nullptr}, o_proj_{nullptr};
};

// The feed-forward layer: SwiGLU (Shazeer 2020).
class LlamaMlp : public torch::nn::Module {
 public:
  explicit LlamaMlp(const LlamaConfig& config) : activation_(config.hidden_act) {
    const auto projection = [&](const char* name, int64_t in, int64_t out) {
      return register_module(name, linear(in, out, config.mlp_bias, config.initializer_range));
    };
    gate_proj_ = projection("gate_proj", config.hidden_size, config.intermediate_size);
    up_proj_ = projection("up_proj", config.hidden_size, config.intermediate_size);
    down_proj_ = projection("down_proj", config.intermediate_size, config.hidden_size);
  }
  Tensor forward(const Tensor& x) {
    return down_proj_->forward(activated(activation_, gate_proj_->forward(x)) * up_proj_->forward(x));
  }

 private:
  std::string activation_;
  torch::nn::Linear gate_proj_{nullptr}, up_proj_{nullptr}, down_proj_{nullptr};
};

RopeConfig rope_of(const ModelConfig& json) {
  // transformers 5 has rope_parameters. Older versions have rope_theta and, next to it,
  // rope_scaling; the oldest have "type" instead of "rope_type".
  const ModelConfig given = json.section(json.find("rope_parameters") ? "rope_parameters" : "rope_scaling");
  RopeConfig rope;
  rope.theta = given.number("rope_theta", json.number("rope_theta", rope.theta));
  rope.type = given.text("rope_type", given.text("type", "default"));
  if (rope.type != "default" && rope.type != "linear" && rope.type != "llama3")
    given.refuse(given.find("rope_type") ? "rope_type" : "type", "this model has default, linear and llama3");
  if (given.number("partial_rotary_factor", json.number("partial_rotary_factor", 1)) != 1)
    json.refuse("partial_rotary_factor", "this model turns whole heads");
  if (rope.type == "default") return rope;
  rope.factor = given.number("factor", rope.factor);
  rope.low_freq_factor = given.number("low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = given.number("high_freq_factor", rope.high_freq_factor);
  rope.original_max_position_embeddings =
      given.size("original_max_position_embeddings", json.size("original_max_position_embeddings", 8192));
  if (rope.type == "llama3" && !(rope.high_freq_factor > rope.low_freq_factor))
    given.refuse("high_freq_factor", "it must be above low_freq_factor");
  return rope;
}

}  // namespace

class LlamaLayer : public torch::nn::Module {
 public:
  LlamaLayer(const LlamaConfig& config, bool has_window) : has_window_(has_window) {
    self_attn_ = register_module("self_attn", std::make_shared<LlamaAttention>(config));
    mlp_ = register_module("mlp", std::make_shared<LlamaMlp>(config));
    input_layernorm_ = register_module("input_layernorm", RmsNorm(config.hidden_size, config.rms_norm_eps));
    post_attention_layernorm_ = register_module("post_attention_layernorm", RmsNorm(config.hidden_size, config.rms_norm_eps));
  }
  Tensor forward(const Tensor& x, const SharedLayerInputs& place, KvCache* cache, size_t layer) {
    const MaybeTensor& bias = has_window_ ? place.window_bias : place.bias;
    const Tensor attended = x + self_attn_->forward(input_layernorm_->forward(x), bias, place, cache, layer);
    return attended + mlp_->forward(post_attention_layernorm_->forward(attended));
  }

 private:
  bool has_window_;
  std::shared_ptr<LlamaAttention> self_attn_;
  std::shared_ptr<LlamaMlp> mlp_;
  RmsNorm input_layernorm_{nullptr}, post_attention_layernorm_{nullptr};
};

LlamaConfig LlamaConfig::from(const ModelConfig& json) {
  json.require_type({"llama", "qwen2", "mistral"});
  const std::string type = json.text("model_type", "llama");
  const bool is_qwen2 = type == "qwen2", is_mistral = type == "mistral";
  const auto is_there = [&](const char* key) { return json.values().find(key) != nullptr; };  // a null counts as given
  LlamaConfig config;
  config.vocab_size = json.size("vocab_size", is_qwen2 ? 151936 : config.vocab_size);
  config.hidden_size = json.size("hidden_size", config.hidden_size);
  config.intermediate_size = json.size("intermediate_size", is_qwen2 ? 22016 : is_mistral ? 14336 : config.intermediate_size);
  config.num_hidden_layers = json.size("num_hidden_layers", config.num_hidden_layers);
  config.num_attention_heads = json.size("num_attention_heads", config.num_attention_heads);
  config.num_key_value_heads =
      json.size("num_key_value_heads", is_mistral && !is_there("num_key_value_heads") ? 8 : config.num_attention_heads);
  if (!json.find("head_dim") && config.hidden_size % config.num_attention_heads != 0)
    json.refuse("num_attention_heads", "hidden_size " + std::to_string(config.hidden_size) + " is not a multiple of it");
  config.head_dim = json.size("head_dim", config.hidden_size / config.num_attention_heads);
  if (config.head_dim % 2 != 0)
    json.refuse("head_dim", "a head of " + std::to_string(config.head_dim) + " elements has no pairs to turn");
  if (config.num_attention_heads % config.num_key_value_heads != 0)
    json.refuse("num_key_value_heads",
                "num_attention_heads " + std::to_string(config.num_attention_heads) + " is not a multiple of it");
  config.max_position_embeddings = json.size("max_position_embeddings", is_qwen2     ? 32768
                                                                        : is_mistral ? 4096 * 32
                                                                                     : config.max_position_embeddings);
  config.hidden_act = json.text("hidden_act", config.hidden_act);
  require_activation(json, "hidden_act", config.hidden_act);
  config.rms_norm_eps = json.number("rms_norm_eps", config.rms_norm_eps);
  config.initializer_range = json.number("initializer_range", config.initializer_range);
  config.attention_dropout = json.number("attention_dropout", config.attention_dropout);
  config.tie_word_embeddings = json.flag("tie_word_embeddings", false);
  config.qkv_bias = is_qwen2 || (!is_mistral && json.flag("attention_bias", false));
  config.o_bias = !is_qwen2 && !is_mistral && json.flag("attention_bias", false);
  config.mlp_bias = !is_qwen2 && !is_mistral && json.flag("mlp_bias", false);
  config.rope = rope_of(json);

  int64_t window = 0, first = 0;  // the layers from `first` on have this window
  if (is_mistral) window = json.integer("sliding_window", is_there("sliding_window") ? 0 : 4096);
  if (is_qwen2 && json.flag("use_sliding_window", false)) {
    window = json.integer("sliding_window", is_there("sliding_window") ? 0 : 4096);
    first = json.integer("max_window_layers", 28);
  }
  const Value* const types = is_qwen2 ? json.find("layer_types") : nullptr;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    bool has_window = layer >= first;
    if (types && types->is_list() && static_cast<size_t>(layer) < types->as_list().size())
      has_window = types->as_list()[static_cast<size_t>(layer)] == Value("sliding_attention");
    config.sliding_windows.push_back(has_window ? window : 0);
  }
  return config;
}

LlamaImpl::LlamaImpl(const LlamaConfig& config) : config_(config) {
  if (config_.num_key_value_heads == 0) config_.num_key_value_heads = config_.num_attention_heads;
  require_multiple("LlamaConfig: num_attention_heads", config_.num_attention_heads, "num_key_value_heads",
                   config_.num_key_value_heads);
  if (config_.head_dim == 0) {
    require_multiple("LlamaConfig: hidden_size", config_.hidden_size, "num_attention_heads", config_.num_attention_heads);
    config_.head_dim = config_.hidden_size / config_.num_attention_heads;
  }
  require_multiple("LlamaConfig: head_dim", config_.head_dim, "the 2 elements that are turned together,", 2);
  config_.sliding_windows.resize(static_cast<size_t>(config_.num_hidden_layers));
  const auto model = folder(*this, "model");
  embed_tokens_ =
      model->register_module("embed_tokens", embedding(config_.vocab_size, config_.hidden_size, config_.initializer_range));
  const auto layers = folder(*model, "layers");
  for (size_t i = 0; i < config_.sliding_windows.size(); ++i)
    layers_.push_back(
        layers->register_module(std::to_string(i), std::make_shared<LlamaLayer>(config_, config_.sliding_windows[i] > 0)));
  norm_ = model->register_module("norm", std::make_shared<RmsNormImpl>(config_.hidden_size, config_.rms_norm_eps));
  if (!config_.tie_word_embeddings)
    lm_head_ = register_module("lm_head", linear(config_.hidden_size, config_.vocab_size, false, config_.initializer_range));
}

namespace {

// The inputs of the layers for `count` tokens, which are the last of `total`.
SharedLayerInputs place_of(const LlamaConfig& config, int64_t count, int64_t total, const Tensor& keep, const Tensor& x) {
  require_positions("Llama", total, config.max_position_embeddings);
  SharedLayerInputs place;
  place.bias = causal_bias(count, total, keep, 0, x.options());
  const auto window = std::max_element(config.sliding_windows.begin(), config.sliding_windows.end());
  if (window != config.sliding_windows.end() && *window > 0)
    place.window_bias = causal_bias(count, total, keep, *window, x.options());
  std::tie(place.cosines, place.sines) = rotations(config, positions_of(count, total, keep, x.device()), x.scalar_type());
  return place;
}

}  // namespace

std::vector<Layer> LlamaImpl::layers() {
  using LayerValues = std::tuple<Tensor, MaybeTensor, MaybeTensor, Tensor, Tensor>;
  const auto embedded = [this](const Tensor& tokens, const MaybeTensor& mask = {}) {
    const Tensor x = embed_tokens_->forward(tokens);
    const SharedLayerInputs place = place_of(config_, tokens.size(1), tokens.size(1), as_keep(mask), x);
    return LayerValues(x, place.bias, place.window_bias, place.cosines, place.sines);
  };
  std::vector<Layer> list = {gannet::function("model.embed_tokens", {embed_tokens_.ptr()}, embedded)};
  for (size_t i = 0; i < layers_.size(); ++i)
    list.push_back(layer_of("model.layers." + std::to_string(i), layers_[i],
                            [i](LlamaLayer& layer, const Tensor& x, const MaybeTensor& bias, const MaybeTensor& window_bias,
                                const Tensor& cosines, const Tensor& sines) {
                              const SharedLayerInputs place{bias, window_bias, cosines, sines};
                              return LayerValues(layer.forward(x, place, nullptr, i), bias, window_bias, cosines, sines);
                            }));
  list.push_back(layer_of("model.norm", norm_,
                          [](RmsNormImpl& norm, const Tensor& x, const MaybeTensor&, const MaybeTensor&, const Tensor&,
                             const Tensor&) { return norm.forward(x); }));
  return list;
}

Tensor LlamaImpl::head(const Tensor& x) { return at::matmul(x, (lm_head_ ? lm_head_->weight : embed_tokens_->weight).t()); }

std::vector<Layer> LlamaImpl::pipeline_layers() {
  std::vector<Layer> list = layers();
  std::shared_ptr<torch::nn::Module> weight = embed_tokens_.ptr();
  if (lm_head_) weight = lm_head_.ptr();
  list.push_back(gannet::function("lm_head", {weight}, [this](const Tensor& x) { return head(x); }));
  return list;
}

Tensor LlamaImpl::pipeline_loss(const Tensor& logits, const Tensor& labels) const { return next_token_loss(logits, labels); }

Tensor LlamaImpl::logits(const Tensor& tokens, const MaybeTensor& mask) { return head(run_layers(layers(), tokens, mask)); }

Tensor LlamaImpl::forward(const Tensor& tokens, const Tensor& labels, const MaybeTensor& mask) {
  return next_token_loss(logits(tokens, mask), labels);
}

Tensor LlamaImpl::next_logits(const GenerationInput& input, KvCache& cache) {
  const int64_t count = input.tokens.size(1), total = count + (input.uses_cache ? cache.length() : 0);
  Tensor x = embed_tokens_->forward(input.tokens);
  const SharedLayerInputs place = place_of(config_, count, total, input.mask, x);
  for (size_t i = 0; i < layers_.size(); ++i) x = layers_[i]->forward(x, place, input.uses_cache ? &cache : nullptr, i);
  return head(norm_->forward(x.select(1, -1)));
}

PretrainedNames LlamaImpl::pretrained_names() const {
  PretrainedNames names{.base = "model", .ignored = {"*rotary_emb.inv_freq"}};
  if (config_.tie_word_embeddings) names.tied = {{"lm_head.weight", "model.embed_tokens.weight"}};
  return names;
}

}  // namespace gannet::models
