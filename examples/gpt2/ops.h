// The most expensive operations of a GPT on a CPU, as autograd functions.
//
// They compute the same as the plain operators, but avoid what is slow in LibTorch: 16-bit products
// on processors without 16-bit instructions, and writing and reading 50,257 logits per token eight
// times. On other devices the plain operators run, with the vocabulary padded to a multiple of 64,
// because rows of odd length would rule out vector loads in the products.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt2 {

class Operators {
 public:
  /// plain: use each operator as in Hugging Face's GPT-2. 16-bit activations are then rounded at
  /// the same places, and a run can be compared bitwise with one of transformers; it is slower.
  explicit Operators(bool plain) : plain_(plain) {}

  /// x weight + bias with weight as [in, out]. x: [N, in] of the weight's dtype; result [N, out].
  at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const;

  /// x Phi(x), with the tanh approximation of Phi (Hendrycks and Gimpel 2016).
  at::Tensor gelu_tanh(const at::Tensor& x) const;

  /// Mean over N tokens of the cross entropy of softmax(hidden weight^T), in fp32, as a scalar.
  /// hidden: [N, width], weight: [vocab, width] of the same dtype, targets: [N] int64. Processes
  /// the vocabulary in chunks that fit the processor's caches; the gradient of the logits is never
  /// stored whole.
  at::Tensor head_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets) const;

  /// Causal attention. query, key, value: [B, heads, T, width / heads]; result of the same shape.
  at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout,
                              double scale) const;

  /// Rows of `weight` for `tokens`. On a CPU the gradient is sparse, so it is added to head_loss's
  /// dense gradient in place.
  at::Tensor lookup(const at::Tensor& weight, const at::Tensor& tokens) const;

 private:
  bool widens(const at::Tensor& x) const;

  bool plain_;
};

/// The 16-bit matrix products that a processor has instructions for, including AMX.
struct ProductSupport {
  bool bf16 = false, fp16 = false;
};
/// Products of this processor. Derived from its features rather than measured, so every run decides
/// alike.
ProductSupport products_here();

/// The dtype in which a CPU with these products multiplies matrices of `dtype`: fp32 for missing
/// 16-bit products.
at::ScalarType product_dtype(at::ScalarType dtype, ProductSupport products = products_here());

/// hidden weight^T over a vocabulary padded to a multiple of 64 rows: [N, padded]. The logits of
/// padding rows are minus infinity, so they do not affect a softmax or receive gradients. The
/// parameter itself is not padded: files and checkpoints hold only the vocabulary. hidden: [N,
/// width], weight: [vocabulary, width] of the same dtype.
at::Tensor padded_logits(const at::Tensor& hidden, const at::Tensor& weight);

}  // namespace gpt2
