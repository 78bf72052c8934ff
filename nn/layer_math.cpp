#include "nn/layer_math.h"

#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

namespace gannet::nn {
namespace {

template <class T>
const T* read(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}
template <class T>
T* write(at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() : nullptr;
}
MatrixSize size_of(const at::Tensor& matrix) { return {matrix.size(0), matrix.size(1)}; }
at::Tensor stats_for(const at::Tensor& rows) { return at::empty({2, rows.size(0)}, rows.options()); }
at::Tensor vector_for(const at::Tensor& rows) { return at::empty({rows.size(1)}, rows.options()); }

template <class T>
class Math {
 public:
  Math(const LayerCall& call, const LayerWeights& weights)
      : call_(call),
        weights_(weights),
        mid_{read<T>(weights.mid_gamma), read<T>(weights.mid_beta), call.eps},
        norm_{read<T>(weights.norm_gamma), read<T>(weights.norm_beta), call.eps} {}

  at::Tensor forward(const at::Tensor& x, int64_t batch, const at::Tensor& mask, LayerActivations* kept) const {
    const MatrixSize size = size_of(x);
    at::Tensor norm_stats = stats_for(x), mid_stats = stats_for(x);
    at::Tensor qkv = at::addmm(weights_.qkv_bias, call_.is_pre_norm ? norm_of(x, norm_, &norm_stats) : x, weights_.qkv.t());
    AttentionResult attended = attention(qkv, mask, batch, call_.heads, call_.dropout(DropoutSite::kAttention));
    if (kept) kept->qkv = qkv;
    qkv.reset();

    at::Tensor z1 = at::mm(attended.context, weights_.out.t()), y1 = at::empty_like(z1);
    bias_dropout_residual(size, write<T>(z1), read<T>(weights_.out_bias), read<T>(x),
                          call_.dropout(DropoutSite::kAttentionOutput), &mid_, write<T>(y1), write<T>(mid_stats),
                          write<T>(mid_stats) + size.rows);
    if (kept) kept->attended = attended;
    attended = {};

    at::Tensor inter = at::mm(y1, weights_.inter.t()), activated = kept ? at::empty_like(inter) : inter;
    bias_gelu(size_of(inter), write<T>(inter), read<T>(weights_.inter_bias), write<T>(activated), call_.is_tanh);
    at::Tensor z2 = at::mm(activated, weights_.output.t()), out = call_.is_pre_norm ? z2 : at::empty_like(z2);
    if (kept) {
      kept->inter = inter;
      if (call_.keeps_activated) kept->activated = activated;
    }
    bias_dropout_residual(size, write<T>(z2), read<T>(weights_.output_bias), read<T>(call_.is_pre_norm ? z1 : y1),
                          call_.dropout(DropoutSite::kLayerOutput), call_.is_pre_norm ? nullptr : &norm_, write<T>(out),
                          write<T>(norm_stats), write<T>(norm_stats) + size.rows);
    if (kept) {
      if (!call_.is_invertible) kept->z1 = z1;
      if (call_.is_pre_norm || call_.is_invertible) kept->y1 = y1;  // otherwise y1 is recomputed from z1
      if (!call_.is_pre_norm && !call_.is_invertible) kept->z2 = z2;
      kept->mid_stats = mid_stats;
      kept->norm_stats = norm_stats;
    }
    return out;
  }

  LayerGradients backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& out, const at::Tensor& mask,
                          LayerActivations kept, const std::array<bool, kParameters>& is_needed) const {
    LayerGradients result;
    auto& of = result.parameters;
    const auto product = [&](Parameter parameter, const at::Tensor& left, const at::Tensor& right) {
      if (is_needed[parameter]) of[parameter] = at::mm(left.t(), right);
    };
    // The backward of the feed-forward part.
    at::Tensor d_z2 = gradient;
    if (!call_.is_pre_norm)
      d_z2 = norm_gradient(gradient, kept.z2.defined() ? kept.z2 : out, !kept.z2.defined(), kept.norm_stats, {}, norm_,
                           of[kNormW], of[kNormB]);
    kept.z2.reset();
    at::Tensor d_branch = dropped(d_z2, DropoutSite::kLayerOutput, of[kOutputB]);
    if (is_needed[kOutputW] && !kept.activated.defined()) {
      kept.activated = at::empty_like(kept.inter);
      bias_gelu<T>(size_of(kept.inter), write<T>(kept.inter), nullptr, write<T>(kept.activated), call_.is_tanh);
    }
    product(kOutputW, d_branch, kept.activated);
    kept.activated.reset();
    at::Tensor d_inter = at::mm(d_branch, weights_.output);
    d_branch.reset();
    of[kInterB] = vector_for(d_inter);
    gelu_backward(size_of(d_inter), read<T>(kept.inter), write<T>(d_inter), write<T>(of[kInterB]), call_.is_tanh);
    kept.inter.reset();
    if (!kept.y1.defined() && is_needed[kInterW]) kept.y1 = norm_of(kept.z1, mid_, nullptr);
    product(kInterW, d_inter, kept.y1);
    at::Tensor d_y1 = at::mm(d_inter, weights_.inter);
    d_inter.reset();
    if (!call_.is_pre_norm) d_y1.add_(d_z2);

    // The backward of the middle norm and of attention.
    const at::Tensor d_z1 = norm_gradient(d_y1, kept.z1.defined() ? kept.z1 : kept.y1, !kept.z1.defined(), kept.mid_stats,
                                          call_.is_pre_norm ? d_z2 : at::Tensor(), mid_, of[kMidNormW], of[kMidNormB]);
    kept.z1.reset(), kept.y1.reset(), d_y1.reset(), d_z2.reset();
    d_branch = dropped(d_z1, DropoutSite::kAttentionOutput, of[kOutB]);
    product(kOutW, d_branch, kept.attended.context);
    const at::Tensor d_context = at::mm(d_branch, weights_.out);
    const at::Tensor d_qkv =
        attention_backward(d_context, kept.qkv, kept.attended, mask, call_.heads, call_.dropout(DropoutSite::kAttention));
    kept.attended = {}, kept.qkv.reset();
    of[kQkvB] = vector_for(d_qkv);
    dropout_backward<T>(size_of(d_qkv), read<T>(d_qkv), {}, nullptr, write<T>(of[kQkvB]));
    if (is_needed[kQkvW]) product(kQkvW, d_qkv, call_.is_pre_norm ? norm_of(x, norm_, nullptr) : x);
    at::Tensor d_input = at::mm(d_qkv, weights_.qkv);
    result.x = call_.is_pre_norm ? norm_gradient(d_input, x, false, kept.norm_stats, d_z1, norm_, of[kNormW], of[kNormB])
                                 : d_input.add_(d_z1);
    return result;
  }

 private:
  at::Tensor norm_of(const at::Tensor& x, const Norm<T>& norm, at::Tensor* stats) const {
    at::Tensor result = at::empty_like(x);
    T* mean = stats ? write<T>(*stats) : nullptr;
    norm_forward(size_of(x), read<T>(x), norm, write<T>(result), mean, mean ? mean + x.size(0) : nullptr);
    return result;
  }
  at::Tensor norm_gradient(const at::Tensor& gradient, const at::Tensor& kept, bool is_output, const at::Tensor& stats,
                           const at::Tensor& residual, const Norm<T>& norm, at::Tensor& gamma, at::Tensor& beta) const {
    at::Tensor result = at::empty_like(gradient);
    gamma = vector_for(gradient);
    beta = vector_for(gradient);
    norm_backward<T>(size_of(gradient),
                     {read<T>(gradient), read<T>(kept), is_output, read<T>(stats), read<T>(stats) + gradient.size(0),
                      read<T>(residual), write<T>(gamma), write<T>(beta)},
                     norm, write<T>(result));
    return result;
  }
  at::Tensor dropped(const at::Tensor& gradient, DropoutSite site, at::Tensor& bias) const {
    const Dropout dropout = call_.dropout(site);
    at::Tensor result = dropout.is_on() ? at::empty_like(gradient) : at::Tensor();
    bias = vector_for(gradient);
    dropout_backward(size_of(gradient), read<T>(gradient), dropout, write<T>(result), write<T>(bias));
    return result.defined() ? result : gradient;
  }

  const LayerCall& call_;
  const LayerWeights& weights_;
  Norm<T> mid_, norm_;
};

}  // namespace

LayerWeights weights_of(const std::array<at::Tensor, kParameters>& parameters, at::ScalarType dtype) {
  const auto matrix = [&](Parameter which) { return parameters[which].to(dtype); };
  LayerWeights weights;
  weights.qkv = matrix(kQkvW), weights.out = matrix(kOutW), weights.inter = matrix(kInterW), weights.output = matrix(kOutputW);
  const std::pair<Parameter, at::Tensor*> vectors[] = {{kQkvB, &weights.qkv_bias},      {kOutB, &weights.out_bias},
                                                       {kMidNormW, &weights.mid_gamma}, {kMidNormB, &weights.mid_beta},
                                                       {kInterB, &weights.inter_bias},  {kOutputB, &weights.output_bias},
                                                       {kNormW, &weights.norm_gamma},   {kNormB, &weights.norm_beta}};
  std::vector<at::Tensor> all;
  for (const auto& [which, part] : vectors) all.push_back(parameters[which]);
  const at::Tensor together = at::cat(all).to(dtype);
  int64_t begin = 0;
  for (const auto& [which, part] : vectors) {
    *part = together.narrow(0, begin, parameters[which].numel());
    begin += parameters[which].numel();
  }
  return weights;
}

at::Tensor layer_forward(const LayerCall& call, const at::Tensor& x, int64_t batch, const at::Tensor& mask,
                         const LayerWeights& weights, LayerActivations* kept) {
  if (x.scalar_type() == at::kDouble) return Math<double>(call, weights).forward(x, batch, mask, kept);
  return Math<float>(call, weights).forward(x, batch, mask, kept);
}

LayerGradients layer_backward(const LayerCall& call, const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& out,
                              const at::Tensor& mask, const LayerWeights& weights, LayerActivations kept,
                              const std::array<bool, kParameters>& is_needed) {
  if (x.scalar_type() == at::kDouble)
    return Math<double>(call, weights).backward(gradient, x, out, mask, std::move(kept), is_needed);
  return Math<float>(call, weights).backward(gradient, x, out, mask, std::move(kept), is_needed);
}

}  // namespace gannet::nn
