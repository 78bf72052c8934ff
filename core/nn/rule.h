// Per-element rules of the transformer layer's kernels: GELU, layer norm, the softmax of attention,
// dropout. This text serves the CPU's loops and a GPU's: it has no include guard, no includes and
// no namespace. Include it where GANNET_DEVICE is defined and, for V, so are +, -, *, /, fma, abs,
// select and exp (gannet/elementwise/scalar.h, loop-inl.h). V is one number or several lanes of
// numbers; tests compare the kernels with these functions on plain numbers.

// ---- GELU

// erf for floats: Abramowitz and Stegun 7.1.26, within 1.5e-7. `falls` is exp(-z^2), which the
// gradient needs as well.
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

// x * cdf(x), and its derivative cdf(x) + x * pdf(x). `erf` is erf(x / sqrt(2)), `falls` is
// exp(-x^2 / 2).
template <class V>
GANNET_DEVICE V gelu_erf(V x, V erf) {
  return x * fma(V(0.5), erf, V(0.5));
}
template <class V>
GANNET_DEVICE V gelu_erf_derivative(V x, V erf, V falls) {
  return fma(x * V(0.3989422804014326779), falls, fma(V(0.5), erf, V(0.5)));
}

// The tanh form of DeepSpeed's kernel: x * (1 + tanh(u)) / 2 with u = sqrt(2/pi) (x + 0.044715
// x^3). (1 + tanh(u)) / 2 is the logistic function of 2u.
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

// ---- layer norm of a row: mean and rstd = 1 / sqrt(variance + eps) are the row's

template <class V>
GANNET_DEVICE V normalized(V x, V mean, V rstd) {
  return (x - mean) * rstd;
}
// Computed from the norm's output if its input is not kept (normalize_invertible).
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
// Gradient of a score with probability p and dropout factor `keep` (0, or 1 / (1 - ratio)). `delta`
// is the row's sum of output times its gradient.
template <class V>
GANNET_DEVICE V score_gradient(V p, V keep, V gradient, V delta, V scale) {
  return p * fma(gradient, keep, -delta) * scale;
}

// ---- dropout: Philox 4x32-10 (Salmon et al. 2011) of the element's position. An element is kept
// if its word is at least ratio * 2^32. Words are assigned so that loops of any width need no
// shuffles: among 64 neighbors in a row, element 16 w + l has word w of counter l.

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
// The counter of an element; it is shared by four of the 64 elements around `column`. `stream`
// separates the layer's dropouts.
GANNET_DEVICE PhiloxCounter dropout_counter(uint64_t row, uint64_t column, uint32_t stream) {
  return {{static_cast<uint32_t>(column / 64 * 16 + column % 16), static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32),
           stream}};
}
GANNET_DEVICE uint32_t dropout_word(uint64_t row, uint64_t column, uint32_t stream, uint64_t key) {
  return philox(dropout_counter(row, column, stream), key).word[column / 16 % 4];
}
