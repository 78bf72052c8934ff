#include <ATen/ops/abs.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <gannet/models/t5.h>
#include <torch/nn/init.h>

#include <cmath>
#include <tuple>

#include "common.h"

namespace gannet::models {
namespace {

double root(int64_t size) { return std::sqrt(static_cast<double>(size)); }

class T5Attention : public torch::nn::Module {
 public:
  T5Attention(const T5Config& config, bool is_decoder, bool has_bias) : config_(config), is_decoder_(is_decoder) {
    const int64_t inner = config.num_heads * config.d_kv;
    const double factor = config.initializer_factor;
    q_ = register_module("q", linear(config.d_model, inner, false, factor / root(config.d_model * config.d_kv)));
    k_ = register_module("k", linear(config.d_model, inner, false, factor / root(config.d_model)));
    v_ = register_module("v", linear(config.d_model, inner, false, factor / root(config.d_model)));
    o_ = register_module("o", linear(inner, config.d_model, false, factor / root(inner)));
    if (has_bias)
      relative_ = register_module("relative_attention_bias", embedding(config.relative_attention_num_buckets, config.num_heads,
                                                                       factor / root(config.d_model)));
  }

  std::pair<Tensor, Tensor> keys_and_values(const Tensor& x) {
    return {split_heads(k_->forward(x), config_.num_heads), split_heads(v_->forward(x), config_.num_heads)};
  }
  Tensor forward(const Tensor& x, const std::pair<Tensor, Tensor>& seen, const MaybeTensor& bias) {
    const Tensor query = split_heads(q_->forward(x), config_.num_heads);
    // The scores are not divided by the square root of d_kv, because q's initial weights are
    // smaller by that factor.
    const AttentionOptions how{.dropout = is_training() ? config_.dropout_rate : 0, .scale = 1, .is_causal = false};
    return o_->forward(merge_heads(attention(query, seen.first, seen.second, bias, how)));
  }
  // relative_bias() is the bias of the last `queries` of `total` tokens against all of them, [1,
  // heads, queries, total], with a gradient; relative() is the module that holds its weight.
  std::shared_ptr<torch::nn::Module> relative() const { return relative_.ptr(); }
  Tensor relative_bias(int64_t queries, int64_t total, at::Device device) {
    const auto options = at::TensorOptions().dtype(at::kLong).device(device);
    const Tensor distance = at::arange(total, options).unsqueeze(0) - at::arange(total - queries, total, options).unsqueeze(1);
    return relative_->forward(bucket_of(distance)).permute({2, 0, 1}).unsqueeze(0);
  }

 private:
  // Half of the buckets hold one distance each; the sizes of the others grow logarithmically up to
  // the largest distance. An encoder uses half of all buckets for keys after the query.
  Tensor bucket_of(const Tensor& distance) const {
    int64_t buckets = config_.relative_attention_num_buckets;
    Tensor first, far;
    if (is_decoder_) {
      far = (-distance).clamp_min(0);
      first = at::zeros_like(far);
    } else {
      buckets /= 2;
      far = at::abs(distance);
      first = (distance > 0).to(at::kLong) * buckets;
    }
    const int64_t exact = buckets / 2;
    const double largest = static_cast<double>(config_.relative_attention_max_distance) / static_cast<double>(exact);
    const Tensor grown =
        exact + (at::log(far.clamp_min(1).to(at::kFloat) / exact) / std::log(largest) * (buckets - exact)).to(at::kLong);
    return first + at::where(far < exact, far, grown.clamp_max(buckets - 1));
  }

  T5Config config_;
  bool is_decoder_;
  torch::nn::Linear q_{nullptr}, k_{nullptr}, v_{nullptr}, o_{nullptr};
  torch::nn::Embedding relative_{nullptr};
};

class T5FeedForward : public torch::nn::Module {
 public:
  explicit T5FeedForward(const T5Config& config) : config_(config) {
    const double factor = config.initializer_factor;
    wi_ = register_module(config.is_gated_act ? "wi_0" : "wi",
                          linear(config.d_model, config.d_ff, false, factor / root(config.d_model)));
    if (config.is_gated_act)
      wi_1_ = register_module("wi_1", linear(config.d_model, config.d_ff, false, factor / root(config.d_model)));
    wo_ = register_module("wo", linear(config.d_ff, config.d_model, false, factor / root(config.d_ff)));
  }
  Tensor forward(const Tensor& x) {
    Tensor wide = activated(config_.dense_act_fn, wi_->forward(x));
    if (wi_1_) wide = wide * wi_1_->forward(x);
    return wo_->forward(dropped(wide, config_.dropout_rate, is_training()));
  }

 private:
  T5Config config_;
  torch::nn::Linear wi_{nullptr}, wi_1_{nullptr}, wo_{nullptr};
};

MaybeTensor sum_of(const Tensor& bias, const MaybeTensor& other) { return other ? bias + *other : bias; }

}  // namespace

// A block's layers: layer.0 is self-attention; in a decoder layer.1 is attention to the encoder's
// output; the last is feed-forward.
class T5Block : public torch::nn::Module {
 public:
  T5Block(const T5Config& config, bool is_decoder, bool has_bias) : dropout_(config.dropout_rate) {
    const auto list = folder(*this, "layer");
    int64_t count = 0;
    const auto add = [&](const char* name, auto module, RmsNorm& norm) {
      const auto layer = folder(*list, std::to_string(count++));
      layer->register_module(name, module);
      norm = layer->register_module("layer_norm", RmsNorm(config.d_model, config.layer_norm_epsilon));
      return module;
    };
    self_attention_ = add("SelfAttention", std::make_shared<T5Attention>(config, is_decoder, has_bias), self_norm_);
    if (is_decoder) cross_attention_ = add("EncDecAttention", std::make_shared<T5Attention>(config, true, false), cross_norm_);
    feed_forward_ = add("DenseReluDense", std::make_shared<T5FeedForward>(config), norm_);
  }

  Tensor forward(const Tensor& x, const MaybeTensor& bias) { return finish(attend(x, bias, nullptr, 0)); }
  Tensor forward(const Tensor& x, const MaybeTensor& bias, const std::pair<Tensor, Tensor>& crossed,
                 const MaybeTensor& cross_bias, KvCache* cache, size_t layer) {
    const Tensor attended = attend(x, bias, cache, layer);
    return finish(attended + drop(cross_attention_->forward(cross_norm_->forward(attended), crossed, cross_bias)));
  }
  std::pair<Tensor, Tensor> crossed(const Tensor& encoded) { return cross_attention_->keys_and_values(encoded); }
  // relative_bias() is the first block's bias, which all blocks share, and relative() is the module
  // that holds its weight. Both throw in other blocks.
  std::shared_ptr<torch::nn::Module> relative() const { return self_attention_->relative(); }
  Tensor relative_bias(int64_t queries, int64_t total, at::Device device) {
    return self_attention_->relative_bias(queries, total, device);
  }

 private:
  Tensor drop(const Tensor& x) { return dropped(x, dropout_, is_training()); }
  Tensor attend(const Tensor& x, const MaybeTensor& bias, KvCache* cache, size_t layer) {
    const Tensor normed = self_norm_->forward(x);
    auto seen = self_attention_->keys_and_values(normed);
    if (cache) seen = cache->append(layer, seen.first, seen.second);
    return x + drop(self_attention_->forward(normed, seen, bias));
  }
  Tensor finish(const Tensor& x) { return x + drop(feed_forward_->forward(norm_->forward(x))); }

  double dropout_;
  std::shared_ptr<T5Attention> self_attention_, cross_attention_;
  std::shared_ptr<T5FeedForward> feed_forward_;
  RmsNorm self_norm_{nullptr}, cross_norm_{nullptr}, norm_{nullptr};
};

T5Config T5Config::from(const ModelConfig& json) {
  json.require_type({"t5", "mt5"});
  T5Config config;
  const bool is_mt5 = json.text("model_type", "t5") == "mt5";
  if (is_mt5) {  // the defaults of MT5Config
    config.vocab_size = 250112;
    config.d_ff = 1024;
    config.num_layers = 8;
    config.num_heads = 6;
  }
  config.vocab_size = json.size("vocab_size", config.vocab_size);
  config.d_model = json.size("d_model", config.d_model);
  config.d_kv = json.size("d_kv", config.d_kv);
  config.d_ff = json.size("d_ff", config.d_ff);
  config.num_layers = json.size("num_layers", config.num_layers);
  config.num_decoder_layers = json.size("num_decoder_layers", config.num_layers);
  config.num_heads = json.size("num_heads", config.num_heads);
  config.relative_attention_num_buckets = json.size("relative_attention_num_buckets", config.relative_attention_num_buckets);
  config.relative_attention_max_distance = json.size("relative_attention_max_distance", config.relative_attention_max_distance);
  config.dropout_rate = json.number("dropout_rate", config.dropout_rate);
  config.layer_norm_epsilon = json.number("layer_norm_epsilon", config.layer_norm_epsilon);
  config.initializer_factor = json.number("initializer_factor", config.initializer_factor);
  // For example "relu" or "gated-gelu"; the latter means gelu_new.
  const std::string projection = json.text("feed_forward_proj", is_mt5 ? "gated-gelu" : "relu");
  config.is_gated_act = projection.starts_with("gated-");
  config.dense_act_fn = config.is_gated_act ? projection.substr(6) : projection;
  if (projection == "gated-gelu") config.dense_act_fn = "gelu_new";
  require_activation(json, "feed_forward_proj", config.dense_act_fn);
  config.tie_word_embeddings = json.flag("tie_word_embeddings", true);
  config.scale_decoder_outputs = json.flag("scale_decoder_outputs", config.tie_word_embeddings && !is_mt5);
  config.pad_token_id = json.integer("pad_token_id", 0);
  config.decoder_start_token_id = json.integer("decoder_start_token_id", config.pad_token_id);
  if (config.relative_attention_num_buckets < 4 ||
      config.relative_attention_max_distance <= config.relative_attention_num_buckets / 2)
    json.refuse("relative_attention_num_buckets", "it must be at least 4, and relative_attention_max_distance above half of it");
  return config;
}

void T5Cache::reorder(const Tensor& rows) {
  decoder.reorder(rows);
  encoded = encoded.index_select(0, rows);
  if (keep.defined()) keep = keep.index_select(0, rows);
  for (auto& [keys, values] : crossed) {
    keys = keys.index_select(0, rows);
    values = values.index_select(0, rows);
  }
}

T5Impl::T5Impl(const T5Config& config) : config_(config) {
  if (config_.num_decoder_layers == 0) config_.num_decoder_layers = config_.num_layers;
  shared_ = register_module("shared", embedding(config_.vocab_size, config_.d_model, config_.initializer_factor));
  const auto stack = [&](const char* name, int64_t count, bool is_decoder, std::vector<std::shared_ptr<T5Block>>& blocks) {
    const auto whole = folder(*this, name);
    const auto list = folder(*whole, "block");
    for (int64_t i = 0; i < count; ++i)
      blocks.push_back(list->register_module(std::to_string(i), std::make_shared<T5Block>(config_, is_decoder, i == 0)));
    return whole->register_module("final_layer_norm", std::make_shared<RmsNormImpl>(config_.d_model, config_.layer_norm_epsilon));
  };
  encoder_norm_ = stack("encoder", config_.num_layers, false, encoder_);
  decoder_norm_ = stack("decoder", config_.num_decoder_layers, true, decoder_);
  if (!config_.tie_word_embeddings)
    lm_head_ = register_module("lm_head", linear(config_.d_model, config_.vocab_size, false, config_.initializer_factor));
}

Tensor T5Impl::embed(const Tensor& tokens) { return dropped(shared_->forward(tokens), config_.dropout_rate, is_training()); }

Tensor T5Impl::head(const Tensor& x) {
  const Tensor scaled = config_.scale_decoder_outputs ? x / root(config_.d_model) : x;
  return at::matmul(scaled, (lm_head_ ? lm_head_->weight : shared_->weight).t());
}

Tensor T5Impl::shifted(const Tensor& labels) const {
  const Tensor whole = labels.to(at::kLong);
  const Tensor start = at::full({whole.size(0), 1}, config_.decoder_start_token_id, whole.options());
  const Tensor before = whole.narrow(1, 0, whole.size(1) - 1);
  return at::cat({start, before.masked_fill(before == -100, config_.pad_token_id)}, 1);
}

std::vector<Layer> T5Impl::layers() {
  // The values passed through the encoder: x, the bias of its attention, the mask (false for
  // padding), and the decoder's tokens.
  using EncoderValues = std::tuple<Tensor, MaybeTensor, MaybeTensor, Tensor>;
  // The values passed through the decoder: x, the bias of its self-attention, the bias for the
  // encoder's tokens, and the encoder's output.
  using DecoderValues = std::tuple<Tensor, MaybeTensor, MaybeTensor, Tensor>;
  const auto begin_encoder = [this](const Tensor& tokens, const Tensor& decoder_tokens, const MaybeTensor& mask = {}) {
    const Tensor x = embed(tokens), keep = as_keep(mask);
    const Tensor bias = encoder_[0]->relative_bias(tokens.size(1), tokens.size(1), tokens.device());
    const MaybeTensor kept = keep.defined() ? MaybeTensor(keep) : std::nullopt;
    return EncoderValues(x, sum_of(bias, padding_bias(keep, x.options())), kept, decoder_tokens);
  };
  const auto encode_block = [](T5Block& block, const Tensor& x, const MaybeTensor& bias, const MaybeTensor& keep,
                               const Tensor& tokens) { return EncoderValues(block.forward(x, bias), bias, keep, tokens); };
  const auto begin_decoder = [this](const Tensor& x, const MaybeTensor&, const MaybeTensor& keep, const Tensor& tokens) {
    const Tensor encoded = dropped(encoder_norm_->forward(x), config_.dropout_rate, is_training()), y = embed(tokens);
    const int64_t length = tokens.size(1);
    const Tensor bias = decoder_[0]->relative_bias(length, length, tokens.device());
    // The bias must include the causal mask. Given a mask of the keys, causal_bias always returns a
    // tensor, with very low numbers for hidden keys.
    const Tensor all = at::full({1, length}, true, at::TensorOptions().dtype(at::kBool).device(tokens.device()));
    return DecoderValues(y, sum_of(bias, causal_bias(length, length, all, 0, y.options())),
                         padding_bias(as_keep(keep), y.options()), encoded);
  };
  const auto decode_block = [](T5Block& block, const Tensor& y, const MaybeTensor& bias, const MaybeTensor& cross_bias,
                               const Tensor& encoded) {
    return DecoderValues(block.forward(y, bias, block.crossed(encoded), cross_bias, nullptr, 0), bias, cross_bias, encoded);
  };
  const auto end = [this](const Tensor& y, const MaybeTensor&, const MaybeTensor&, const Tensor&) {
    return dropped(decoder_norm_->forward(y), config_.dropout_rate, is_training());
  };
  std::vector<Layer> list = {gannet::function("encoder.embed_tokens", {shared_.ptr(), encoder_[0]->relative()}, begin_encoder)};
  for (size_t i = 0; i < encoder_.size(); ++i)
    list.push_back(layer_of("encoder.block." + std::to_string(i), encoder_[i], encode_block));
  list.push_back(
      gannet::function("decoder.embed_tokens", {shared_.ptr(), encoder_norm_, decoder_[0]->relative()}, begin_decoder));
  for (size_t i = 0; i < decoder_.size(); ++i)
    list.push_back(layer_of("decoder.block." + std::to_string(i), decoder_[i], decode_block));
  list.push_back(gannet::function("decoder.final_layer_norm", {decoder_norm_}, end));
  return list;
}

std::vector<Layer> T5Impl::pipeline_layers() {
  std::vector<Layer> list = layers();
  const auto begin = [this, first = list[0]](const Tensor& tokens, const Tensor& labels, const MaybeTensor& mask = {}) {
    Wire inputs{tokens, shifted(labels)};
    if (mask) inputs.push_back(*mask);
    return first(inputs);
  };
  list[0] = gannet::function(list[0].name(), list[0].modules(), begin);
  std::shared_ptr<torch::nn::Module> weight = shared_.ptr();
  if (lm_head_) weight = lm_head_.ptr();
  list.push_back(gannet::function("lm_head", {weight}, [this](const Tensor& x) { return head(x); }));
  return list;
}

Tensor T5Impl::pipeline_loss(const Tensor& logits, const Tensor& labels) const { return cross_entropy(logits, labels); }

Tensor T5Impl::logits(const Tensor& tokens, const Tensor& decoder_tokens, const MaybeTensor& mask) {
  return head(run_layers(layers(), tokens, decoder_tokens, mask));
}

Tensor T5Impl::forward(const Tensor& tokens, const Tensor& labels, const MaybeTensor& mask) {
  return cross_entropy(logits(tokens, shifted(labels), mask), labels);
}

int64_t T5Impl::encode(const GenerationInput& prompts, T5Cache& cache) {
  Tensor x = embed(prompts.tokens);
  const int64_t length = prompts.tokens.size(1);
  const MaybeTensor bias =
      sum_of(encoder_[0]->relative_bias(length, length, x.device()), padding_bias(prompts.mask, x.options()));
  for (const auto& block : encoder_) x = block->forward(x, bias);
  cache.encoded = encoder_norm_->forward(x);
  cache.keep = prompts.mask;
  cache.crossed.clear();
  for (const auto& block : decoder_) cache.crossed.push_back(block->crossed(cache.encoded));
  return config_.decoder_start_token_id;
}

Tensor T5Impl::next_logits(const GenerationInput& input, T5Cache& cache) {
  const int64_t count = input.tokens.size(1), total = count + (input.uses_cache ? cache.decoder.length() : 0);
  Tensor y = embed(input.tokens);
  MaybeTensor bias = decoder_[0]->relative_bias(count, total, y.device());
  const Tensor all = at::full({1, total}, true, at::TensorOptions().dtype(at::kBool).device(y.device()));
  bias = sum_of(*bias, causal_bias(count, total, all, 0, y.options()));
  const MaybeTensor cross_bias = padding_bias(cache.keep, y.options());
  for (size_t i = 0; i < decoder_.size(); ++i)
    y = decoder_[i]->forward(y, bias, cache.crossed[i], cross_bias, input.uses_cache ? &cache.decoder : nullptr, i);
  return head(decoder_norm_->forward(y.select(1, -1)));
}

PretrainedNames T5Impl::pretrained_names() const {
  PretrainedNames names{
      .ignored = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"},
      .tied = {{"encoder.embed_tokens.weight", "shared.weight"}, {"decoder.embed_tokens.weight", "shared.weight"}}};
  if (config_.tie_word_embeddings) names.tied.emplace_back("lm_head.weight", "shared.weight");
  return names;
}

}  // namespace gannet::models
