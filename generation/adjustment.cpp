#include "generation/adjustment.h"

#include <algorithm>
#include <limits>
#include <set>

namespace gannet::generation {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

}  // namespace

int64_t longest_text(const GenerateOptions& options, int64_t prompt_length) {
  if (options.max_length <= 0) return options.max_new_tokens;
  return std::min(options.max_new_tokens, options.max_length - prompt_length);
}

bool Adjustment::is_needed() const {
  const bool has_least_length = (options_.min_length > 0 || options_.min_new_tokens > 0) && !options_.stop_tokens.empty();
  return options_.repetition_penalty != 1 || options_.no_repeat_ngram_size > 0 || has_least_length;
}

// Applies the penalty of Keskar et al. 2019, section 4.1, except that it multiplies negative
// logits. Each token is penalised once, no matter how many times it was seen.
void Adjustment::penalise(float* values, int64_t vocabulary, const std::vector<int64_t>& seen) const {
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  for (const int64_t token : std::set<int64_t>(seen.begin(), seen.end()))
    if (token < vocabulary) values[token] = values[token] < 0 ? values[token] * penalty : values[token] / penalty;
}

// If the last n - 1 tokens already occur earlier in the row, bans the token that followed them.
void Adjustment::ban_repeated(float* values, int64_t vocabulary, const std::vector<int64_t>& seen) const {
  const auto size = static_cast<size_t>(options_.no_repeat_ngram_size);
  if (seen.size() < size) return;
  const auto prefix = seen.end() - static_cast<ptrdiff_t>(size - 1);
  for (size_t begin = 0; begin + size <= seen.size(); ++begin) {
    const int64_t next = seen[begin + size - 1];
    if (next < vocabulary && std::equal(prefix, seen.end(), seen.begin() + static_cast<ptrdiff_t>(begin))) values[next] = kBanned;
  }
}

void Adjustment::operator()(float* values, int64_t vocabulary, const std::vector<int64_t>& seen, size_t prompt_length) const {
  if (options_.repetition_penalty != 1) penalise(values, vocabulary, seen);
  if (options_.no_repeat_ngram_size > 0) ban_repeated(values, vocabulary, seen);
  const auto length = static_cast<int64_t>(seen.size()), text = length - static_cast<int64_t>(prompt_length);
  const bool is_too_short = options_.min_new_tokens > 0 ? text < options_.min_new_tokens : length < options_.min_length;
  if (!is_too_short) return;
  for (const int64_t token : options_.stop_tokens)
    if (token < vocabulary) values[token] = kBanned;
}

}  // namespace gannet::generation
