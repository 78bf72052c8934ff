// The most expensive operations of a GPT on a CPU, as autograd functions.
//
// They compute the same as the plain operators, but avoid what is slow in LibTorch: 16-bit products
// on processors without 16-bit instructions, and writing and reading 50,257 logits per token eight
// times. On devices other than the CPU the plain operators run, with the vocabulary padded to a
// multiple of 64, because rows of odd length would rule out vector loads in the products.
#pragma once

#include <ATen/core/Tensor.h>

namespace gpt2 {

class Operators {
 public:
  /// `plain`: whether to use the same operators as Hugging Face's GPT-2. 16-bit activations are
  /// then rounded at the same points, so that a run can be compared bitwise with one of
  /// transformers, but is slower.
  explicit Operators(bool plain) : plain_(plain) {}

  /// Computes x weight + bias, where `weight` is [in, out], `x` is [N, in] of the weight's dtype,
  /// and the result is [N, out].
  at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const;

  /// Computes x Phi(x), with the tanh approximation of Phi (Hendrycks and Gimpel 2016).
  at::Tensor gelu_tanh(const at::Tensor& x) const;

  /// Returns the mean over N tokens of the cross entropy of softmax(hidden weight^T), in fp32, as a
  /// scalar. `hidden` is [N, width], `weight` is [vocab, width] of the same dtype, and `targets` is
  /// [N] int64. Processes the vocabulary in chunks that fit the processor's caches; the gradient of
  /// the logits is never stored in full.
  at::Tensor head_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets) const;

  /// Causal attention. `query`, `key` and `value` are [B, heads, T, width / heads]; the result has
  /// the same shape.
  at::Tensor causal_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double dropout,
                              double scale) const;

  /// Returns the rows of `weight` for `tokens`. On a CPU, unless `plain`, the gradient is sparse, so it
  /// is added in place to head_loss's dense gradient.
  at::Tensor lookup(const at::Tensor& weight, const at::Tensor& tokens) const;

 private:
  bool widens(const at::Tensor& x) const;

  bool plain_;
};

/// The 16-bit matrix products that a processor has instructions for, including AMX.
struct ProductSupport {
  bool bf16 = false, fp16 = false;
};
/// The products that this processor supports, derived from its features rather than measured, so
/// that every run decides the same way.
ProductSupport products_here();

/// The dtype in which a CPU with these products multiplies matrices of `dtype`: fp32 if the 16-bit
/// product is missing.
at::ScalarType product_dtype(at::ScalarType dtype, ProductSupport products = products_here());

/// Computes hidden weight^T over a vocabulary padded to a multiple of 64 rows: [N, padded]. The
/// logits of padding rows are minus infinity, so they neither affect a softmax nor receive
/// gradients. The parameter itself is not padded: files and checkpoints hold only the vocabulary.
/// `hidden` is [N, width]; `weight` is [vocabulary, width] of the same dtype.
at::Tensor padded_logits(const at::Tensor& hidden, const at::Tensor& weight);

}  // namespace gpt2
