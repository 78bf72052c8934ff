#include "generation/next_token.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gannet::generation {

NextToken::NextToken(const GenerateOptions& options, size_t rows) : options_(options) {
  if (!options.sample) return;
  const uint64_t seed = options.seed ? *options.seed : std::random_device()();
  for (size_t row = 0; row < rows; ++row) {
    std::seed_seq parts{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(row)};
    random_.emplace_back(parts);
  }
}

std::vector<int64_t> NextToken::operator()(const at::Tensor& logits) {
  std::vector<int64_t> tokens(static_cast<size_t>(logits.size(0)));
  if (random_.empty()) {
    const at::Tensor likeliest = logits.argmax(1);
    std::copy_n(likeliest.const_data_ptr<int64_t>(), tokens.size(), tokens.begin());
  } else {
    for (size_t row = 0; row < tokens.size(); ++row) tokens[row] = draw(row, logits.select(0, static_cast<int64_t>(row)));
  }
  return tokens;
}

// Computes in doubles and in a fixed order, so that a seed gives the same text everywhere. Applies
// temperature, then top-k, then top-p.
int64_t NextToken::draw(size_t row, const at::Tensor& logits) {
  const at::Tensor row_logits = logits.contiguous();
  const float* const values = row_logits.const_data_ptr<float>();
  std::vector<int64_t> order(static_cast<size_t>(row_logits.numel()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return values[a] > values[b]; });
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < order.size()) order.resize(static_cast<size_t>(options_.top_k));
  std::vector<double> weights;
  double total = 0;
  for (const int64_t token : order) {
    weights.push_back(std::exp((static_cast<double>(values[token]) - values[order[0]]) / options_.temperature));
    total += weights.back();
  }
  if (options_.top_p < 1) {  // the token at which the sum reaches top_p is the last
    const double wanted = options_.top_p * total;
    size_t kept = 0;
    for (total = 0; kept < weights.size() && total < wanted; ++kept) total += weights[kept];
    kept = std::max<size_t>(kept, 1);
    weights.resize(kept);
    total = std::accumulate(weights.begin(), weights.end(), 0.0);
  }
  // A random number of 53 bits in [0, 1), times the total.
  double left = static_cast<double>(random_[row]() >> 11) * 0x1p-53 * total;
  for (size_t i = 0; i < weights.size(); ++i)
    if (left -= weights[i]; left < 0) return order[i];
  return order[weights.size() - 1];
}

}  // namespace gannet::generation
