// The per-element rules of the transformer layer's kernels: GELU, layer norm, the softmax of
// attention, and dropout. This file is included in loops for the CPU and for GPUs, so it has no
// include guard, no includes and no namespace. Include it where GANNET_DEVICE is defined and where
// V has +, -, *, /, fma, abs, select and exp (gannet/elementwise/scalar.h, loop-inl.h). V is a
// scalar or a vector of SIMD lanes. Tests compare the kernels with these functions on plain
// scalars.

// ---- GELU

// Approximates erf for floats by Abramowitz and Stegun 7.1.26, with an error of at most 1.5e-7.
// `falls` is exp(-z^2), which the gradient needs as well.
template <class V>
GANNET_DEVICE V erf_within_float(V z, V falls) {
  const V t = V(1) / fma(V(0.3275911f), abs(z), V(1));
  V sum = fma(V(1.061405429f), t, V(-1.453152027f));
  sum = fma(sum, t, V(1.421413741f));
  sum = fma(sum, t, V(-0.284496736f));
  sum = fma(sum, t, V(0.254829592f));
  const V magnitude = V(1) - sum * t * falls;
  return select(z < V(0), -magnitude, magnitude);
}

// These compute GELU, x * cdf(x), and its derivative, cdf(x) + x * pdf(x). `erf` is erf(x /
// sqrt(2)), `falls` is exp(-x^2 / 2).
template <class V>
GANNET_DEVICE V gelu_erf(V x, V erf) {
  return x * fma(V(0.5), erf, V(0.5));
}
template <class V>
GANNET_DEVICE V gelu_erf_derivative(V x, V erf, V falls) {
  return fma(x * V(0.3989422804014326779), falls, fma(V(0.5), erf, V(0.5)));
}

// The tanh form of GELU, as in DeepSpeed's kernel, is x * gate with gate = (1 + tanh(u)) / 2 and u
// = sqrt(2/pi) (x + 0.044715 x^3). The gate is the logistic function of 2u.
template <class V>
GANNET_DEVICE V gelu_tanh_gate(V x) {
  const V twice = V(1.5957691216057307117) * x * fma(V(0.044715) * x, x, V(1));
  return V(1) / (V(1) + exp(-twice));
}
template <class V>
GANNET_DEVICE V gelu_tanh(V x) {
  return x * gelu_tanh_gate(x);
}
template <class V>
GANNET_DEVICE V gelu_tanh_derivative(V x) {
  const V gate = gelu_tanh_gate(x);
  const V slope = V(1.5957691216057307117) * fma(V(3 * 0.044715) * x, x, V(1));
  return fma(x * slope, gate * (V(1) - gate), gate);
}

// ---- layer norm of a row, with the row's mean and rstd = 1 / sqrt(variance + eps)

template <class V>
GANNET_DEVICE V normalized(V x, V mean, V rstd) {
  return (x - mean) * rstd;
}
// Computes the same from the norm's output, for a norm that does not keep its input
// (normalize_invertible).
template <class V>
GANNET_DEVICE V normalized_from_output(V y, V gamma, V beta) {
  return (y - beta) / gamma;
}
// `scaled` is gamma * gradient of the output. `mean_scaled` is its mean over the row, and
// `mean_product` is the mean of its product with the normalized input.
template <class V>
GANNET_DEVICE V norm_input_gradient(V scaled, V normalized, V rstd, V mean_scaled, V mean_product) {
  return rstd * (scaled - fma(normalized, mean_product, mean_scaled));
}

// ---- attention: `lse` is the logarithm of the sum of a row's exponentials

template <class V>
GANNET_DEVICE V attention_logit(V score, V scale, V mask) {
  return fma(score, scale, mask);
}
// The gradient of a score with probability p and dropout factor `keep` (0, or 1 / (1 - ratio)).
// `delta` is the sum, over the row's output, of each element times its gradient.
template <class V>
GANNET_DEVICE V score_gradient(V p, V keep, V gradient, V delta, V scale) {
  return p * fma(gradient, keep, -delta) * scale;
}

// ---- dropout: an element's word is Philox 4x32-10 (Salmon et al. 2011) of its position, and the
// element is kept if the word is at least ratio * 2^32. Words are assigned so that loops of any
// width need no shuffles: among 64 neighbors in a row, element 16 w + l has word w of counter l.

struct PhiloxCounter {
  uint32_t word[4];
};
GANNET_DEVICE PhiloxCounter philox(PhiloxCounter counter, uint64_t key) {
  uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53u} * counter.word[0], second = uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<uint32_t>(second >> 32) ^ counter.word[1] ^ low, static_cast<uint32_t>(second),
                static_cast<uint32_t>(first >> 32) ^ counter.word[3] ^ high, static_cast<uint32_t>(first)}};
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return counter;
}
// Returns the counter of an element, shared by four of the 64 neighbours in its group. `stream`
// distinguishes the counters of the layer's dropout sites.
GANNET_DEVICE PhiloxCounter dropout_counter(uint64_t row, uint64_t column, uint32_t stream) {
  return {{static_cast<uint32_t>(column / 64 * 16 + column % 16), static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32),
           stream}};
}
GANNET_DEVICE uint32_t dropout_word(uint64_t row, uint64_t column, uint32_t stream, uint64_t key) {
  return philox(dropout_counter(row, column, stream), key).word[column / 16 % 4];
}
