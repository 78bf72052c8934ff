// Implements generate(): pads prompts on the left into rows, then adds a token to each row per step
// until all have ended.
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <gannet/error.h>
#include <gannet/generate.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>

#include "generation/adjustment.h"
#include "generation/beams.h"
#include "generation/next_token.h"

namespace gannet::detail {
namespace {

using generation::Beams;
using generation::longest_text;
using generation::NextToken;

at::Tensor numbers(const std::vector<int64_t>& values, at::Device device) { return at::tensor(values, at::kLong).to(device); }

// The rows of a batch: the tokens that the model has processed, and those to process next.
class GenerationRows {
 public:
  GenerationRows(const TextModel& model, const TokenLists& prompts, int64_t copies, bool uses_cache);

  at::Tensor logits();  // logits after the last token of each row: [rows, vocabulary] fp32 on the CPU
  void append(const std::vector<int64_t>& tokens);
  void reorder(const std::vector<int64_t>& rows);  // makes row i a copy of the former row rows[i]
  // For each row, without padding: the tokens before its text (the prompt, or an encoder-decoder's
  // first token), and the text.
  const TokenLists& seen() const { return seen_; }
  size_t prompt_length(size_t row) const { return prompt_lengths_[row]; }

 private:
  static GenerationInput padded(const TokenLists& prompts, int64_t copies, at::Device device);

  const TextModel& model_;
  const bool uses_cache_;
  GenerationInput all_;  // all tokens so far; for an encoder-decoder, the decoder's
  int64_t given_ = 0;    // number of tokens of each row that are in the cache
  TokenLists seen_;
  std::vector<size_t> prompt_lengths_;
};

GenerationInput GenerationRows::padded(const TokenLists& prompts, int64_t copies, at::Device device) {
  const auto rows = static_cast<int64_t>(prompts.size());
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  at::Tensor tokens = at::zeros({rows, static_cast<int64_t>(longest)}, at::kLong);
  at::Tensor mask = at::zeros({rows, static_cast<int64_t>(longest)}, at::kBool);
  bool is_padded = false;
  for (int64_t row = 0; row < rows; ++row) {
    const auto& prompt = prompts[static_cast<size_t>(row)];
    const auto length = static_cast<int64_t>(prompt.size()), pad = static_cast<int64_t>(longest) - length;
    std::copy(prompt.begin(), prompt.end(), tokens[row].mutable_data_ptr<int64_t>() + pad);
    mask[row].narrow(0, pad, length).fill_(true);
    is_padded = is_padded || pad > 0;
  }
  GenerationInput input;
  input.tokens = tokens.repeat_interleave(copies, 0).to(device);
  if (is_padded) input.mask = mask.repeat_interleave(copies, 0).to(device);
  return input;
}

GenerationRows::GenerationRows(const TextModel& model, const TokenLists& prompts, int64_t copies, bool uses_cache)
    : model_(model), uses_cache_(uses_cache), all_(padded(prompts, copies, model.device)) {
  for (const auto& prompt : prompts) seen_.insert(seen_.end(), static_cast<size_t>(copies), prompt);
  if (model.encode) {
    const int64_t first = model.encode(all_);
    all_ = {at::full({all_.tokens.size(0), 1}, first, all_.tokens.options())};
    seen_.assign(seen_.size(), {first});
  }
  for (const auto& tokens : seen_) prompt_lengths_.push_back(tokens.size());
}

at::Tensor GenerationRows::logits() {
  GenerationInput input = all_;
  input.uses_cache = uses_cache_;
  if (uses_cache_) {
    const int64_t length = all_.tokens.size(1);
    input.tokens = all_.tokens.narrow(1, given_, length - given_);
    given_ = length;
  }
  return model_.next_logits(input).to(at::kCPU, at::kFloat);
}

void GenerationRows::append(const std::vector<int64_t>& tokens) {
  for (size_t row = 0; row < tokens.size(); ++row) seen_[row].push_back(tokens[row]);
  all_.tokens = at::cat({all_.tokens, numbers(tokens, model_.device).unsqueeze(1)}, 1);
  if (all_.mask.defined()) all_.mask = at::cat({all_.mask, at::ones({all_.mask.size(0), 1}, all_.mask.options())}, 1);
}

void GenerationRows::reorder(const std::vector<int64_t>& rows) {
  const at::Tensor order = numbers(rows, model_.device);
  all_.tokens = all_.tokens.index_select(0, order);
  if (all_.mask.defined()) all_.mask = all_.mask.index_select(0, order);
  model_.reorder(order);
  TokenLists before = std::move(seen_);
  seen_.clear();
  for (const int64_t row : rows) seen_.push_back(before[static_cast<size_t>(row)]);
}

// Checks the largest logit of each row that has not ended: if it is not finite, the row has no most
// likely token and no probabilities. Each `rows_of_prompt` consecutive rows belong to one prompt.
void require_finite(const at::Tensor& logits, const std::vector<bool>& has_ended, int64_t rows_of_prompt, int64_t step) {
  const at::Tensor largest = logits.amax(1).contiguous();  // NaN if any of them is NaN
  for (int64_t row = 0; row < largest.size(0); ++row) {
    const float value = largest.const_data_ptr<float>()[row];
    const int64_t prompt = row / rows_of_prompt;
    if (std::isfinite(value) || has_ended[static_cast<size_t>(prompt)]) continue;
    throw Error(ErrorCode::kNonFinite,
                c10::str("generate: the largest of the model's logits is ", value, " for token ", step, " after prompt ", prompt),
                "look for NaN in the weights, or for an overflow of a 16-bit model: fp16 ends at 65504, bf16 and fp32 do not");
  }
}

bool stops(const GenerateOptions& options, int64_t token) {
  return std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) != options.stop_tokens.end();
}

// Returns `values` [rows, vocabulary] with the adjustments of the options, made in a copy because the
// rows of the model's tensor may share memory. Throws Error(kArgument) if they ban all tokens of a prompt.
at::Tensor adjusted(const at::Tensor& values, const generation::Adjustment& adjust, const GenerationRows& rows,
                    const std::vector<bool>& has_ended, int64_t rows_of_prompt) {
  if (!adjust.is_needed()) return values;
  at::Tensor changed = values.clone(at::MemoryFormat::Contiguous);
  const int64_t vocabulary = changed.size(1);
  std::vector<bool> has_token(has_ended);
  for (size_t row = 0; row < rows.seen().size(); ++row) {
    const size_t prompt = row / static_cast<size_t>(rows_of_prompt);
    if (has_ended[prompt]) continue;
    float* const row_values = changed.mutable_data_ptr<float>() + static_cast<int64_t>(row) * vocabulary;
    adjust(row_values, vocabulary, rows.seen()[row], rows.prompt_length(row));
    if (!has_token[prompt])
      has_token[prompt] = std::any_of(row_values, row_values + vocabulary, [](float value) { return std::isfinite(value); });
  }
  if (const auto none = std::find(has_token.begin(), has_token.end(), false); none != has_token.end())
    throw Error(
        ErrorCode::kArgument,
        c10::str("generate: no token may follow prompt ", none - has_token.begin(), " any more: each one of the vocabulary's ",
                 vocabulary, " is kept out by no_repeat_ngram_size, min_length or min_new_tokens"),
        "raise no_repeat_ngram_size, or ask for a shorter text");
  return changed;
}

TokenLists one_by_one(const TextModel& model, const TokenLists& prompts, const GenerateOptions& options) {
  GenerationRows rows(model, prompts, 1, options.use_cache);
  NextToken next(options, prompts.size());
  const generation::Adjustment adjust(options);
  TokenLists texts(prompts.size());
  std::vector<bool> has_ended(prompts.size());
  for (int64_t step = 0;; ++step) {
    const at::Tensor logits = rows.logits();
    require_finite(logits, has_ended, 1, step);
    const std::vector<int64_t> tokens = next(adjusted(logits, adjust, rows, has_ended, 1));
    for (size_t row = 0; row < prompts.size(); ++row) {
      if (has_ended[row]) continue;
      texts[row].push_back(tokens[row]);
      const int64_t most = longest_text(options, static_cast<int64_t>(rows.prompt_length(row)));
      has_ended[row] = stops(options, tokens[row]) || static_cast<int64_t>(texts[row].size()) == most;
    }
    if (std::all_of(has_ended.begin(), has_ended.end(), [](bool ended) { return ended; })) break;
    rows.append(tokens);
  }
  return texts;
}

TokenLists by_beams(const TextModel& model, const TokenLists& prompts, const GenerateOptions& options) {
  const int64_t count = options.num_beams;
  GenerationRows rows(model, prompts, count, options.use_cache);
  const generation::Adjustment adjust(options);
  std::vector<Beams> beams;
  for (size_t i = 0; i < prompts.size(); ++i)
    beams.emplace_back(options, longest_text(options, static_cast<int64_t>(rows.prompt_length(i * static_cast<size_t>(count)))));
  const auto all_are_done = [&] {
    return std::all_of(beams.begin(), beams.end(), [](const Beams& one) { return one.is_done(); });
  };
  for (int64_t step = 0;; ++step) {
    const at::Tensor logits = rows.logits();
    std::vector<bool> has_ended;
    for (const Beams& one : beams) has_ended.push_back(one.is_done());
    require_finite(logits, has_ended, count, step);
    const at::Tensor log_probabilities = adjusted(logits.log_softmax(-1), adjust, rows, has_ended, count);
    std::vector<int64_t> order, tokens;
    for (size_t i = 0; i < beams.size(); ++i) {
      const int64_t first = static_cast<int64_t>(i) * count;
      if (!beams[i].is_done()) beams[i].advance(log_probabilities.narrow(0, first, count));
      for (const int64_t origin : beams[i].origins()) order.push_back(first + origin);
      tokens.insert(tokens.end(), beams[i].last_tokens().begin(), beams[i].last_tokens().end());
    }
    if (all_are_done()) break;
    rows.reorder(order);
    rows.append(tokens);
  }
  TokenLists texts;
  for (const Beams& one : beams) texts.push_back(one.best());
  return texts;
}

}  // namespace

TokenLists generate(const TextModel& model, const TokenLists& prompts, const GenerateOptions& options) {
  check(options, prompts, model.positions, model.vocabulary, static_cast<bool>(model.encode));
  if (prompts.empty()) return {};
  return options.num_beams > 1 ? by_beams(model, prompts, options) : one_by_one(model, prompts, options);
}

at::Device device_of(const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) return parameter.device();
  return at::kCPU;
}
bool is_training(const torch::nn::Module& module) { return module.is_training(); }
void set_evaluation(torch::nn::Module& module) { module.eval(); }

TrainingModes::TrainingModes(torch::nn::Module& module) {
  modes_.emplace_back(&module, module.is_training());
  for (const auto& part : module.modules(/*include_self=*/false)) modes_.emplace_back(part.get(), part->is_training());
}
void TrainingModes::restore() const {
  // A module's train() also sets its submodules, so restore the outermost first.
  for (const auto& [part, was_training] : modes_)
    if (part->is_training() != was_training) part->train(was_training);
}

}  // namespace gannet::detail
