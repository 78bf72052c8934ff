#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/nn/transformer_layer.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "nn/transformer_function.h"

namespace gannet::nn {
namespace {

// SplitMix64 (Steele et al. 2014): similar seeds and draws get unrelated keys.
uint64_t mixed(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// Draws one number from the default generator per micro-batch, regardless of the layer's size. A
// checkpoint of a run includes the generator's state, and the recomputation of a region restores
// it. The number is drawn by an operator so that a region sees which generator is used.
uint64_t key_of_micro_batch(int64_t seed) {
  at::Tensor drawn = at::empty({1}, at::kLong);
  drawn.random_();
  return mixed(mixed(static_cast<uint64_t>(seed)) ^ static_cast<uint64_t>(drawn.const_data_ptr<int64_t>()[0]));
}

void say_once(std::atomic<bool>& is_said, bool is_set, const char* text) {
  if (is_set && !is_said.exchange(true)) log_info(text);
}

// Returns the mask as a four-dimensional tensor to add to the scores; undefined if there is no
// mask.
at::Tensor additive(const at::Tensor& mask, const at::Tensor& x, int64_t heads) {
  if (!mask.defined()) return mask;
  const int64_t wanted[] = {x.size(0), heads, x.size(1), x.size(1)};
  bool fits = mask.dim() == 4;
  for (int64_t i = 0; fits && i < 4; ++i) fits = mask.size(i) == 1 || mask.size(i) == wanted[i];
  if (!fits)
    throw Error(ErrorCode::kArgument,
                c10::str("attention_mask has the shape ", mask.sizes(), ", which does not expand to ", at::IntArrayRef(wanted),
                         " (batch, heads, words, words)"),
                "give BERT's [batch, 1, 1, words] or [batch, 1, words, words]");
  if (mask.scalar_type() == at::kBool)
    return at::zeros(mask.sizes(), mask.options().dtype(at::kFloat))
        .masked_fill_(mask.logical_not(), -std::numeric_limits<double>::infinity());
  if (!mask.is_floating_point())
    throw Error(ErrorCode::kArgument, c10::str("attention_mask is of ", c10::toString(mask.scalar_type())),
                "give booleans, where true may be looked at, or numbers to add to the scores: (1 - mask) * -10000");
  if (mask.requires_grad())
    throw Error(ErrorCode::kUnsupported, "attention_mask requires a gradient, which the transformer layer does not compute",
                "pass attention_mask.detach(), or add the bias in a layer of LibTorch's operators");
  return mask.detach();
}

}  // namespace

TransformerLayerImpl::TransformerLayerImpl(const TransformerLayerConfig& config, const std::vector<at::Tensor>& initial_weights,
                                           const std::vector<at::Tensor>& initial_biases)
    : config_(config) {
  config_.check();
  static std::atomic<bool> stochastic_is_said, tuple_is_said;
  say_once(stochastic_is_said, config.stochastic_mode, "transformer layer: stochastic_mode has no effect, results always repeat");
  say_once(tuple_is_said, config.return_tuple || config.huggingface,
           "transformer layer: return_tuple is what forward_tuple() does; forward() returns the tensor");
  reset();
  copy_initial(initial_weights, initial_biases);
  train(config.training);
}

void TransformerLayerImpl::reset() {
  const int64_t hidden = config_.hidden_size, inter = config_.intermediate();
  const auto make = [&](const char* name, at::IntArrayRef shape) {
    return register_parameter(name, at::empty(shape, config_.fp16 ? at::kHalf : torch::get_default_dtype_as_scalartype()));
  };
  attn_qkvw = make("attn_qkvw", {3 * hidden, hidden}), attn_qkvb = make("attn_qkvb", {3 * hidden});
  attn_ow = make("attn_ow", {hidden, hidden}), attn_ob = make("attn_ob", {hidden});
  attn_nw = make("attn_nw", {hidden}), attn_nb = make("attn_nb", {hidden});
  inter_w = make("inter_w", {inter, hidden}), inter_b = make("inter_b", {inter});
  output_w = make("output_w", {hidden, inter}), output_b = make("output_b", {hidden});
  norm_w = make("norm_w", {hidden}), norm_b = make("norm_b", {hidden});
  reset_parameters();
}

void TransformerLayerImpl::reset_parameters() {
  const at::NoGradGuard no_grad;
  const double range = config_.initializer_range < 0 ? 0.02 : config_.initializer_range;
  const bool is_adjusted = config_.adjust_init_range && config_.local_rank == 0;
  const double output_range = is_adjusted ? range / std::sqrt(2.0 * static_cast<double>(config_.num_hidden_layers)) : range;
  attn_qkvw.normal_(0, range);
  attn_ow.normal_(0, output_range);
  inter_w.normal_(0, range);
  output_w.normal_(0, output_range);
  for (at::Tensor* bias : {&attn_qkvb, &attn_ob, &attn_nb, &inter_b, &output_b, &norm_b}) bias->zero_();
  for (at::Tensor* gamma : {&attn_nw, &norm_w}) gamma->fill_(1);
}

void TransformerLayerImpl::copy_initial(const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases) {
  const at::NoGradGuard no_grad;
  const auto copy = [&](const char* what, const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& into) {
    if (from.empty()) return;
    if (from.size() != 8)
      throw Error(ErrorCode::kArgument, c10::str(what, " has ", from.size(), " tensors"),
                  "give 8: queries, keys, values, attention's output, its norm, the intermediate part, the output, its norm");
    for (size_t i = 0; i < 8; ++i) {
      if (from[i].sizes() != into[i].sizes())
        throw Error(ErrorCode::kArgument,
                    c10::str(what, "[", i, "] has the shape ", from[i].sizes(), ", and the layer's is ", into[i].sizes()));
      into[i].copy_(from[i]);
    }
  };
  const auto w = attn_qkvw.chunk(3), b = attn_qkvb.chunk(3);
  copy("initial_weights", weights, {w[0], w[1], w[2], attn_ow, attn_nw, inter_w, output_w, norm_w});
  copy("initial_biases", biases, {b[0], b[1], b[2], attn_ob, attn_nb, inter_b, output_b, norm_b});
}

at::Tensor TransformerLayerImpl::forward(const at::Tensor& hidden_states, const at::Tensor& attention_mask) {
  if (!hidden_states.defined() || hidden_states.dim() != 3 || hidden_states.size(2) != config_.hidden_size ||
      !hidden_states.is_floating_point())
    throw Error(
        ErrorCode::kArgument,
        c10::str("hidden_states is ",
                 hidden_states.defined() ? c10::str(hidden_states.scalar_type(), " ", hidden_states.sizes()) : "undefined"),
        c10::str("give floating-point numbers of [batch, words, ", config_.hidden_size, "]"));
  if (hidden_states.device() != attn_qkvw.device())
    throw Error(ErrorCode::kArgument,
                c10::str("hidden_states is on ", hidden_states.device().str(), ", and the transformer layer's parameters are on ",
                         attn_qkvw.device().str()),
                "move the batch to the engine's device: batch.to(engine->device())");
  const bool drops = is_training();
  LayerCall call{.heads = config_.heads,
                 .eps = config_.layer_norm_eps,
                 .is_pre_norm = config_.pre_layer_norm,
                 .is_invertible = config_.normalize_invertible,
                 .keeps_activated = !config_.gelu_checkpoint,
                 .is_tanh = config_.gelu == "tanh",
                 .attention_ratio = drops ? std::max(0.0, config_.attn_dropout_ratio) : 0,
                 .hidden_ratio = drops ? std::max(0.0, config_.hidden_dropout_ratio) : 0,
                 .key = 0,
                 .layer = static_cast<uint32_t>(config_.layer_id)};
  if (call.attention_ratio > 0 || call.hidden_ratio > 0) call.key = key_of_micro_batch(config_.seed);
  return run_layer(
      call, hidden_states, additive(attention_mask, hidden_states, config_.heads),
      {attn_qkvw, attn_qkvb, attn_ow, attn_ob, attn_nw, attn_nb, inter_w, inter_b, output_w, output_b, norm_w, norm_b});
}

std::tuple<at::Tensor> TransformerLayerImpl::forward_tuple(const at::Tensor& hidden_states, const at::Tensor& attention_mask) {
  return {forward(hidden_states, attention_mask)};
}

}  // namespace gannet::nn
