#include "generation/beams.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>

namespace gannet::generation {
namespace {

// A score that is lower than any sum of log-probabilities.
constexpr float kNever = -1e9F;

}  // namespace

Beams::Beams(const GenerateOptions& options, int64_t max_new_tokens) : options_(options), max_new_tokens_(max_new_tokens) {
  const auto count = static_cast<size_t>(options.num_beams);
  running_.resize(count);
  for (size_t i = 1; i < count; ++i) running_[i].score = kNever;  // all equal the prompt, so only the first is continued
  whole_.resize(count);
  for (BeamText& text : whole_) text.score = kNever;
  origins_.assign(count, 0);
  last_tokens_.assign(count, 0);
}

float Beams::penalised(float sum, size_t length) const {
  return sum / static_cast<float>(std::pow(static_cast<double>(length), options_.length_penalty));
}

void Beams::advance(const at::Tensor& log_probabilities) {
  const size_t count = running_.size();
  const int64_t vocabulary = log_probabilities.size(1);
  std::vector<float> sums;
  for (const BeamText& text : running_) sums.push_back(text.score);
  const at::Tensor all = (log_probabilities + at::from_blob(sums.data(), {static_cast<int64_t>(count), 1})).view({-1});
  const int64_t looked_at = std::min<int64_t>(
      std::max<int64_t>(2, 1 + static_cast<int64_t>(options_.stop_tokens.size())) * options_.num_beams, all.numel());
  const auto [best, places] = all.topk(looked_at);
  std::vector<BeamText> candidates;
  std::vector<int64_t> from;
  std::vector<bool> ends;
  for (int64_t i = 0; i < looked_at; ++i) {
    const int64_t place = places.const_data_ptr<int64_t>()[i], token = place % vocabulary;
    from.push_back(place / vocabulary);
    BeamText text{running_[static_cast<size_t>(from.back())].tokens, best.const_data_ptr<float>()[i]};
    text.tokens.push_back(token);
    ends.push_back(static_cast<int64_t>(text.tokens.size()) == max_new_tokens_ ||
                   std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), token) != options_.stop_tokens.end());
    candidates.push_back(std::move(text));
  }
  end_texts(candidates, ends);

  std::vector<size_t> order;
  for (size_t i = 0; i < candidates.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ends[a] < ends[b]; });
  order.resize(count);
  std::vector<BeamText> next;
  for (size_t i = 0; i < count; ++i) {
    origins_[i] = from[order[i]];
    last_tokens_[i] = candidates[order[i]].tokens.back();
    next.push_back(std::move(candidates[order[i]]));
    if (ends[order[i]]) next.back().score += kNever;
  }
  running_ = std::move(next);

  // Can the best running beam still beat the worst complete text at its current length?
  const float possible = penalised(running_[0].score, running_[0].tokens.size());
  const bool are_all_whole = std::all_of(whole_.begin(), whole_.end(), [](const BeamText& text) { return text.is_whole; });
  can_improve_ = can_improve_ && std::any_of(whole_.begin(), whole_.end(), [&](const BeamText& text) {
                   return possible > (text.is_whole ? whole_.back().score : kNever);
                 });
  is_done_ = !can_improve_ || (options_.early_stopping && are_all_whole) ||
             std::all_of(ends.begin(), ends.end(), [](bool e) { return e; });
}

void Beams::end_texts(const std::vector<BeamText>& candidates, const std::vector<bool>& ends) {
  for (size_t i = 0; i < std::min(candidates.size(), running_.size()); ++i) {
    if (!ends[i]) continue;
    BeamText text = candidates[i];
    text.score = penalised(text.score, text.tokens.size());
    text.is_whole = true;
    whole_.push_back(std::move(text));
  }
  std::stable_sort(whole_.begin(), whole_.end(), [](const BeamText& a, const BeamText& b) { return a.score > b.score; });
  whole_.resize(running_.size());
}

}  // namespace gannet::generation
