#include "ops.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace gpt2 {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Memory for matrices of tens of megabytes, each of which is used for one product. The memory is
// kept, since allocating it in every layer would leave holes between the activations in the C
// library's heap, several times the size of the activations.
class Scratch {
 public:
  // The result is valid until the next call.
  Tensor get(at::IntArrayRef sizes, at::ScalarType dtype) {
    const int64_t numel = c10::multiply_integers(sizes);
    if (!memory_.defined() || memory_.scalar_type() != dtype || memory_.numel() < numel) {
      memory_ = Tensor();
      memory_ = at::empty({numel}, dtype);
    }
    return memory_.narrow(0, 0, numel).view(sizes);
  }
  // Copies `tensor` to `dtype`; allocates a new tensor if the copy may become part of a graph
  // (create_graph).
  Tensor copy(const Tensor& tensor, at::ScalarType dtype) {
    if (tensor.scalar_type() == dtype || at::GradMode::is_enabled()) return tensor.to(dtype);
    return get(tensor.sizes(), dtype).copy_(tensor);
  }
  Tensor product(const Tensor& a, const Tensor& b) {
    if (at::GradMode::is_enabled()) return at::mm(a, b);
    Tensor into = get({a.size(0), b.size(1)}, a.scalar_type());
    return at::mm_out(into, a, b);
  }

 private:
  Tensor memory_;
};

thread_local Scratch wide_weight, wide_grad;

// Multiplies 16-bit matrices in fp32, where products are exact. Sums are kept in fp32 either way,
// so the result differs from that of 16-bit instructions only in the order of additions.
class WideAffine : public torch::autograd::Function<WideAffine> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, const Tensor& bias) {
    context->save_for_backward({x, weight});
    return at::addmm(bias.to(at::kFloat), x.to(at::kFloat), wide_weight.copy(weight, at::kFloat)).to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    const auto dtype = x.scalar_type();
    const Tensor grad = grads[0].to(at::kFloat);                             // shape [N, out]
    Tensor grad_x = at::mm(grad, wide_weight.copy(weight, at::kFloat).t());  // shape [N, in]
    Tensor grad_weight = wide_grad.product(x.to(at::kFloat).t(), grad);      // shape [in, out]
    return {grad_x.to(dtype), grad_weight.to(dtype), grad.sum(0).to(dtype)};
  }
};

class HeadLoss : public torch::autograd::Function<HeadLoss> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& weight, const Tensor& targets) {
    const auto dtype = hidden.scalar_type(), wide = head_dtype(dtype);
    const Tensor h = hidden.to(wide);
    variable_list saved{hidden, weight, targets, Tensor()};
    std::vector<Tensor> parts;  // log-sum-exp of each chunk, each [N] fp32
    for (const auto& [begin, size] : chunks(hidden.size(0), weight.size(0))) {
      // The logits are rounded to the model's dtype, like those of the plain operators.
      const Tensor logits = at::mm(h, wide_weight.copy(weight.narrow(0, begin, size), wide).t()).to(dtype);  // shape [N, size]
      parts.push_back(at::logsumexp(logits.to(at::kFloat), 1));
      saved.push_back(logits);
    }
    const Tensor log_total = at::logsumexp(at::stack(parts), 0);  // shape [N], fp32
    saved[3] = log_total;
    const Tensor target_logits = (hidden.to(at::kFloat) * weight.index_select(0, targets).to(at::kFloat)).sum(1).to(dtype);
    context->save_for_backward(saved);
    return (log_total - target_logits).mean();
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor &hidden = saved[0], &weight = saved[1], &targets = saved[2];
    const int64_t tokens = hidden.size(0);
    const auto dtype = hidden.scalar_type(), wide = head_dtype(dtype);
    const Tensor scale = grads[0] / tokens;
    const Tensor log_total = saved[3].unsqueeze(1);
    // d loss / d logits = (softmax - one-hot) * scale; the scale is applied to the small factors of the products.
    const Tensor scaled_hidden = (hidden.to(at::kFloat) * scale).to(wide);
    Tensor grad_hidden = at::zeros({tokens, hidden.size(1)}, at::kFloat);
    Tensor grad_weight = at::empty_like(weight);
    const int64_t* target = targets.const_data_ptr<int64_t>();
    size_t index = 4;
    for (const auto& [begin, size] : chunks(tokens, weight.size(0))) {
      Tensor p = (saved[index++] - log_total).exp_();  // shape [N, size], fp32
      float* probability = p.mutable_data_ptr<float>();
      for (int64_t i = 0; i < tokens; ++i)
        if (target[i] >= begin && target[i] < begin + size) probability[i * size + target[i] - begin] -= 1;
      p = p.to(wide);
      const Tensor rows = wide_weight.copy(weight.narrow(0, begin, size), wide);
      if (wide == at::kFloat)
        grad_hidden.addmm_(p, rows);
      else
        grad_hidden.add_(at::mm(p, rows));
      grad_weight.narrow(0, begin, size).copy_(wide_grad.product(p.t(), scaled_hidden));
    }
    return {grad_hidden.mul_(scale).to(dtype), grad_weight, Tensor()};
  }

 private:
  // fp16 is replaced by fp32: the loss scale divided by the number of tokens, times a hidden value,
  // may be outside fp16's range.
  static at::ScalarType head_dtype(at::ScalarType dtype) { return dtype == at::kHalf ? at::kFloat : product_dtype(dtype); }

  struct Chunk {
    int64_t begin, size;
  };
  // A chunk has about a million logits: 4 MB in fp32, which stays in the second- and third-level
  // caches.
  static std::vector<Chunk> chunks(int64_t tokens, int64_t vocabulary) {
    const int64_t size = std::clamp<int64_t>((int64_t{1} << 20) / tokens, 512, 8192);
    std::vector<Chunk> all;
    for (int64_t begin = 0; begin < vocabulary; begin += size) all.push_back({begin, std::min(size, vocabulary - begin)});
    return all;
  }
};

}  // namespace

ProductSupport products_here() {
#if defined(__x86_64__)
  // Every processor that has AMX tiles for bf16 also has AVX-512 bf16 dot products; one that has
  // AMX for fp16 also has AVX-512 fp16.
  static const ProductSupport products{__builtin_cpu_supports("avx512bf16") != 0, __builtin_cpu_supports("avx512fp16") != 0};
  return products;
#else
  return {.bf16 = true, .fp16 = false};
#endif
}

at::ScalarType product_dtype(at::ScalarType dtype, ProductSupport products) {
  if (dtype == at::kBFloat16) return products.bf16 ? dtype : at::kFloat;
  if (dtype == at::kHalf) return products.fp16 ? dtype : at::kFloat;
  return dtype;
}

Tensor padded_logits(const Tensor& hidden, const Tensor& weight) {
  constexpr int64_t kMultiple = 64;
  const int64_t vocabulary = weight.size(0), padding = (kMultiple - vocabulary % kMultiple) % kMultiple;
  if (padding == 0) return at::mm(hidden, weight.t());
  Tensor mask = at::zeros({vocabulary + padding}, hidden.options().requires_grad(false));
  mask.narrow(0, vocabulary, padding).fill_(-std::numeric_limits<double>::infinity());
  return at::addmm(mask, hidden, at::constant_pad_nd(weight, {0, 0, 0, padding}).t());
}

bool Operators::widens(const Tensor& x) const {
  return !plain_ && x.is_cpu() && product_dtype(x.scalar_type()) != x.scalar_type();
}

Tensor Operators::affine(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
  if (widens(x) && x.scalar_type() == weight.scalar_type()) return WideAffine::apply(x, weight, bias);
  return at::addmm(bias, x, weight);
}

Tensor Operators::gelu_tanh(const Tensor& x) const {
  if (!plain_) return at::gelu(x, "tanh");
  // Separate statements fix the order in which backward adds the three gradients of x; within one
  // expression the order would depend on how the compiler evaluates it.
  const Tensor half = 0.5 * x;
  const Tensor cube = at::pow(x, 3.0);
  const Tensor inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * cube);
  return half * (1.0 + at::tanh(inner));
}

Tensor Operators::head_loss(const Tensor& hidden, const Tensor& weight, const Tensor& targets) const {
  if (!plain_ && hidden.is_cpu() && hidden.scalar_type() != at::kDouble && hidden.scalar_type() == weight.scalar_type())
    return HeadLoss::apply(hidden, weight, targets.contiguous());
  const Tensor logits = plain_ ? at::mm(hidden, weight.t()) : padded_logits(hidden, weight);
  return at::cross_entropy_loss(logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat), targets);
}

Tensor Operators::causal_attention(const Tensor& query, const Tensor& key, const Tensor& value, double dropout,
                                   double scale) const {
  if (widens(query)) {
    const auto wide = at::kFloat;
    return at::scaled_dot_product_attention(query.to(wide), key.to(wide), value.to(wide), {}, dropout, /*is_causal=*/true, scale)
        .to(query.scalar_type());
  }
  return at::scaled_dot_product_attention(query, key, value, {}, dropout, /*is_causal=*/true, scale);
}

Tensor Operators::lookup(const Tensor& weight, const Tensor& tokens) const {
  const bool sparse = !plain_ && weight.is_cpu();
  return at::embedding(weight, tokens, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false, sparse);
}

}  // namespace gpt2
