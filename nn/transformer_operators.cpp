#include "nn/transformer_operators.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace gannet::nn {
namespace {

constexpr int64_t kLow32 = 0xFFFFFFFF;

// Philox 4x32-10, as in rule.h, on whole tensors. The 32-bit words are stored in int64; the 64 bits
// of their products are correct, although the top bit is interpreted as a sign.
struct PhiloxWords {
  at::Tensor word[4];
};
PhiloxWords philox(PhiloxWords counter, uint64_t key) {
  auto low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  const auto upper = [](const at::Tensor& product) { return product.bitwise_right_shift(32).bitwise_and(kLow32); };
  const auto lower = [](const at::Tensor& product) { return product.bitwise_and(kLow32); };
  for (int round = 0; round < 10; ++round) {
    const at::Tensor first = counter.word[0].mul(int64_t{0xD2511F53}), second = counter.word[2].mul(int64_t{0xCD9E8D57});
    counter = {{upper(second).bitwise_xor(counter.word[1]).bitwise_xor(int64_t{low}), lower(second),
                upper(first).bitwise_xor(counter.word[3]).bitwise_xor(int64_t{high}), lower(first)}};
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  return counter;
}

// Computes rows [first, first + count) of kept_elements().
at::Tensor kept_rows(const Dropout& dropout, int64_t first, int64_t count, int64_t columns, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const int64_t blocks = (columns + 63) / 64;
  const at::Tensor row = at::arange(first, first + count, options).view({count, 1, 1});
  const PhiloxWords words = philox({{at::arange(blocks * 16, options).view({1, blocks, 16}), row.bitwise_and(kLow32),
                                     row.bitwise_right_shift(32), at::full({1, 1, 1}, int64_t{dropout.stream}, options)}},
                                   dropout.key);
  const at::Tensor all =
      at::stack({words.word[0], words.word[1], words.word[2], words.word[3]}, /*dim=*/2);  // [count, blocks, 4, 16]
  return all.view({count, blocks * 64}).narrow(1, 0, columns).ge(int64_t{dropout.threshold()});
}

at::Tensor dropped(const at::Tensor& value, const Dropout& dropout) {
  if (!dropout.is_on()) return value;
  const int64_t columns = value.size(-1);
  const at::Tensor kept = kept_elements(dropout, value.numel() / columns, columns, value.device()).view(value.sizes());
  return at::where(kept, value.mul(dropout.scale()), at::zeros({}, value.options()));
}

// `q`, `k` and `v` are [batch, heads, tokens, width of a head].
at::Tensor attended(const LayerCall& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const at::Tensor& mask) {
  const at::Tensor added = mask.defined() ? mask.to(q.scalar_type()) : mask;
  const Dropout dropout = call.dropout(DropoutSite::kAttention);
  if (!dropout.is_on()) return at::scaled_dot_product_attention(q, k, v, added.defined() ? std::optional(added) : std::nullopt);
  at::Tensor scores = at::matmul(q, k.transpose(-2, -1)).mul(1 / std::sqrt(static_cast<double>(q.size(-1))));
  if (!added.defined()) return at::matmul(dropped(at::softmax(scores, -1), dropout), v);
  // A token that may attend to nothing has output 0 and passes no gradient. Without this, its
  // softmax over only -inf would be NaN.
  const at::Tensor sees_nothing = added.eq(-std::numeric_limits<double>::infinity()).all(-1, /*keepdim=*/true);
  scores = scores.add(added).masked_fill(sees_nothing, 0);
  return at::matmul(dropped(at::softmax(scores, -1).masked_fill(sees_nothing, 0), dropout), v);
}

}  // namespace

at::Tensor kept_elements(const Dropout& dropout, int64_t rows, int64_t columns, at::Device device) {
  // Works on a range of rows at a time, because the random words need several times eight bytes per
  // element.
  constexpr int64_t kMostElements = 1 << 24;
  const int64_t stretch = std::max<int64_t>(1, kMostElements / std::max<int64_t>(columns, 64));
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < rows; first += stretch)
    parts.push_back(kept_rows(dropout, first, std::min(stretch, rows - first), columns, device));
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

at::Tensor layer_by_operators(const LayerCall& call, const at::Tensor& x, const at::Tensor& mask,
                              const std::array<at::Tensor, kParameters>& p) {
  const int64_t batch = x.size(0), words = x.size(1), width = x.size(2);
  const at::ScalarType dtype = p[kQkvW].scalar_type();
  const at::Tensor in = x.to(dtype);
  if (x.numel() == 0) {  // the result still depends on every parameter, with gradients of 0
    at::Tensor sum = in.sum();
    for (const at::Tensor& parameter : p) sum = sum.add(parameter.mul(0).sum());
    return in.add(sum.mul(0)).to(x.scalar_type());
  }
  const auto norm = [&](const at::Tensor& value, Parameter gamma, Parameter beta) {
    return at::layer_norm(value, {width}, p[gamma], p[beta], call.eps);
  };
  const at::Tensor qkv = at::linear(call.is_pre_norm ? norm(in, kNormW, kNormB) : in, p[kQkvW], p[kQkvB]);
  const auto parts = qkv.view({batch, words, 3, call.heads, width / call.heads}).permute({2, 0, 3, 1, 4}).unbind(0);
  const at::Tensor context = attended(call, parts[0], parts[1], parts[2], mask).transpose(1, 2).reshape(x.sizes());
  const at::Tensor z1 = in.add(dropped(at::linear(context, p[kOutW], p[kOutB]), call.dropout(DropoutSite::kAttentionOutput)));
  const at::Tensor y1 = norm(z1, kMidNormW, kMidNormB);
  const at::Tensor activated = at::gelu(at::linear(y1, p[kInterW], p[kInterB]), call.is_tanh ? "tanh" : "none");
  const at::Tensor branch = dropped(at::linear(activated, p[kOutputW], p[kOutputB]), call.dropout(DropoutSite::kLayerOutput));
  const at::Tensor out = call.is_pre_norm ? z1.add(branch) : norm(y1.add(branch), kNormW, kNormB);
  return out.to(x.scalar_type());
}

}  // namespace gannet::nn
