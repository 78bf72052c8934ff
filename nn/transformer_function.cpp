#include "nn/transformer_function.h"

#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/StringUtil.h>
#include <gannet/error.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "nn/layer_math.h"
#include "nn/transformer_operators.h"

namespace gannet::nn {
namespace {

at::ScalarType computed_as(const std::array<at::Tensor, kParameters>& parameters) {
  return parameters[kQkvW].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor rows_of(const at::Tensor& x, at::ScalarType dtype) { return x.to(dtype).contiguous().view({-1, x.size(-1)}); }

at::Tensor expanded(const at::Tensor& mask, const LayerCall& call, const at::Tensor& x, at::ScalarType dtype) {
  if (!mask.defined()) return mask;
  // The kernels read contiguous rows, so a mask with one number per row is expanded to whole rows
  // in memory.
  const at::Tensor rows = mask.to(dtype).expand({mask.size(0), mask.size(1), mask.size(2), x.size(1)}).contiguous();
  return rows.expand({x.size(0), call.heads, x.size(1), x.size(1)});
}

// Throws if (y - beta) / gamma would be too inaccurate: it lacks the bits of the normalized value
// that were lost in y when beta was added, or when the product with gamma was subnormal.
template <class T>
void check_invertible(const at::Tensor& gamma, const at::Tensor& beta, const char* name) {
  const T *g = gamma.const_data_ptr<T>(), *b = beta.const_data_ptr<T>();
  for (int64_t i = 0; i < gamma.numel(); ++i) {
    const T size = std::abs(g[i]);
    if (size >= T(1e-6) && size * 256 >= std::abs(b[i])) continue;
    throw Error(ErrorCode::kUnsupported,
                c10::str("normalize_invertible: ", name, "[", i, "] is ", static_cast<double>(g[i]),
                         ", too small to find a norm's input from its output (bias ", static_cast<double>(b[i]), ")"),
                "set normalize_invertible to false for this layer");
  }
}
void check_invertible(const LayerCall& call, const LayerWeights& weights) {
  const auto check = [&](const at::Tensor& gamma, const at::Tensor& beta, const char* name) {
    if (gamma.scalar_type() == at::kDouble)
      check_invertible<double>(gamma, beta, name);
    else
      check_invertible<float>(gamma, beta, name);
  };
  check(weights.mid_gamma, weights.mid_beta, "attn_nw");
  if (!call.is_pre_norm) check(weights.norm_gamma, weights.norm_beta, "norm_w");
}

at::Tensor forward_of(const LayerCall& call, const at::Tensor& x, const at::Tensor& mask,
                      const std::array<at::Tensor, kParameters>& parameters, LayerActivations* kept, at::Tensor* out_rows) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::ScalarType dtype = computed_as(parameters);
  const LayerWeights weights = weights_of(parameters, dtype);
  if (kept && call.is_invertible) check_invertible(call, weights);
  if (x.numel() == 0) return at::empty(x.sizes(), x.options());
  const at::Tensor rows = layer_forward(call, rows_of(x, dtype), x.size(0), expanded(mask, call, x, dtype), weights, kept);
  if (out_rows) *out_rows = rows;
  return rows.view(x.sizes()).to(x.scalar_type());
}

struct CallHolder : torch::CustomClassHolder {
  explicit CallHolder(const LayerCall& call) : call(call) {}
  LayerCall call;
};
struct Mask {  // hides the tensor from autograd, so that it gets no gradient
  at::Tensor tensor;
};

class LayerFunction : public torch::autograd::Function<LayerFunction> {
 public:
  // `inputs` holds x, followed by the parameters.
  static at::Tensor forward(torch::autograd::AutogradContext* context, const LayerCall& call, const Mask& mask,
                            at::TensorList inputs) {
    LayerActivations kept;
    at::Tensor out;
    const at::Tensor& x = inputs[0];
    const at::Tensor result = forward_of(call, x, mask.tensor, parameters_of(inputs), &kept, &out);
    const bool reads_output = !call.is_pre_norm && call.is_invertible;
    torch::autograd::variable_list saved = {mask.tensor,       kept.qkv,        kept.attended.context,
                                            kept.attended.lse, kept.z1,         kept.y1,
                                            kept.inter,        kept.activated,  kept.z2,
                                            kept.mid_stats,    kept.norm_stats, reads_output ? out : at::Tensor()};
    saved.insert(saved.end(), inputs.begin(), inputs.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["call"] = c10::IValue::make_capsule(c10::make_intrusive<CallHolder>(call));
    return result;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (at::GradMode::is_enabled())
      throw Error(ErrorCode::kUnsupported,
                  "the transformer layer has no second derivative, and its backward ran with create_graph",
                  "build the layer of LibTorch's operators where a gradient of its gradient is needed");
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const LayerCall& call = static_cast<CallHolder*>(context->saved_data["call"].toCapsule().get())->call;
    const auto saved = context->get_saved_variables();
    LayerActivations kept{{saved[2], saved[3]}, saved[1], saved[4], saved[5], saved[6], saved[7], saved[8], saved[9], saved[10]};
    const at::Tensor &mask = saved[0], &out = saved[11];
    const at::TensorList inputs = at::TensorList(saved).slice(12);
    const at::Tensor& x = inputs[0];
    const auto parameters = parameters_of(inputs);
    std::array<bool, kParameters> is_needed;
    for (size_t i = 0; i < kParameters; ++i) is_needed[i] = context->needs_input_grad(i + 1);
    torch::autograd::variable_list results(2 + 1 + kParameters);
    if (!gradients[0].defined()) return results;
    if (x.numel() == 0) {
      for (size_t i = 0; i <= kParameters; ++i) results[i + 2] = at::zeros_like(inputs[i]);
      return results;
    }
    const at::ScalarType dtype = computed_as(parameters);
    LayerGradients of = layer_backward(call, rows_of(gradients[0], dtype), rows_of(x, dtype), out, expanded(mask, call, x, dtype),
                                       weights_of(parameters, dtype), std::move(kept), is_needed);
    results[2] = of.x.view(x.sizes()).to(x.scalar_type());
    for (size_t i = 0; i < kParameters; ++i)
      if (is_needed[i]) results[i + 3] = of.parameters[i].to(parameters[i].scalar_type());
    return results;
  }

 private:
  static std::array<at::Tensor, kParameters> parameters_of(at::TensorList inputs) {
    std::array<at::Tensor, kParameters> result;
    for (size_t i = 0; i < kParameters; ++i) result[i] = inputs[i + 1];
    return result;
  }
};

}  // namespace

at::Tensor run_layer(const LayerCall& call, const at::Tensor& x, const at::Tensor& mask,
                     const std::array<at::Tensor, kParameters>& parameters) {
  if (!x.is_cpu()) return layer_by_operators(call, x, mask, parameters);
  std::vector<at::Tensor> inputs{x};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  bool is_recorded = false;
  for (const at::Tensor& input : inputs) is_recorded = is_recorded || input.requires_grad();
  if (!is_recorded || !at::GradMode::is_enabled()) return forward_of(call, x, mask, parameters, nullptr, nullptr);
  return LayerFunction::apply(call, Mask{mask}, at::TensorList(inputs));
}

}  // namespace gannet::nn
