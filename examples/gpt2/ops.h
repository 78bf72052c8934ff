// The operations in which a GPT on a CPU spends its time, as autograd functions.
//
// They compute what the plain operators compute. They save time where LibTorch's plain way is slow: 16-bit products on
// processors that have none, and the 50,257 logits per token that would be written and read eight times over. On other devices
// the plain operators run, over a vocabulary padded to a multiple of 64: odd rows would cost the products their vector loads.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt2 {

class Operators {
 public:
  /// plain: each operator as Hugging Face's GPT-2 calls it. 16-bit activations are then rounded where it rounds them, and a
  /// run can be compared with one of transformers bit for bit; it takes longer.
  explicit Operators(bool plain) : plain_(plain) {}

  /// x weight + bias with weight as [in, out]. x: [N, in] of the weight's dtype; result [N, out].
  at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const;

  /// x Phi(x), Phi by its approximation with a hyperbolic tangent (Hendrycks and Gimpel 2016).
  at::Tensor gelu_tanh(const at::Tensor& x) const;

  /// Mean over N tokens of the cross entropy of softmax(hidden weight^T), in fp32, as a scalar.
  /// hidden: [N, width], weight: [vocab, width] of the same dtype, targets: [N] int64. Reads the vocabulary in chunks that fit
  /// the processor's caches; the gradient of the logits is never stored.
  at::Tensor head_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets) const;

  /// Causal attention. query, key, value: [B, heads, T, width / heads]; result of the same shape.
  at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout,
                              double scale) const;

  /// Rows of `weight` for `tokens`. On a CPU its gradient is sparse, so that it joins the dense one of head_loss in place.
  at::Tensor lookup(const at::Tensor& weight, const at::Tensor& tokens) const;

 private:
  bool widens(const at::Tensor& x) const;

  bool plain_;
};

/// Products of 16-bit matrices that a processor has instructions for, AMX included.
struct Products {
  bool bf16 = false, fp16 = false;
};
/// Of this processor. A rule on its features, not a measurement: every run decides alike.
Products products_here();

/// The dtype in which a CPU with such products multiplies matrices of `dtype`: fp32 for the 16-bit ones that it lacks.
at::ScalarType product_dtype(at::ScalarType dtype, Products products = products_here());

/// hidden weight^T over a vocabulary that is padded to a multiple of 64 rows: [N, padded]. The logits of the rows that `weight`
/// lacks are minus infinity, so that no softmax sees them and no gradient flows into them. The parameter itself is not padded:
/// files and checkpoints hold the vocabulary alone. hidden: [N, width], weight: [vocabulary, width] of the same dtype.
at::Tensor padded_logits(const at::Tensor& hidden, const at::Tensor& weight);

}  // namespace gpt2
