// generate(): prompts to rows that are padded on their left, a token for each row and step, until all have ended.
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gannet/error.h>
#include <gannet/generate.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "generation/beams.h"
#include "generation/next_token.h"

namespace gannet::detail {
namespace {

using generation::Beams;
using generation::NextToken;

at::Tensor numbers(const std::vector<int64_t>& values, at::Device device) { return at::tensor(values, at::kLong).to(device); }

// Rows with what the model has been given, and what it gets next.
class Rows {
 public:
  Rows(const TextModel& model, const TokenLists& prompts, int64_t copies, bool uses_cache);

  at::Tensor logits();  // after the last token of each row: [rows, vocabulary] fp32 on the CPU
  void append(const std::vector<int64_t>& tokens);
  void reorder(const std::vector<int64_t>& rows);  // row i continues what rows[i] was

 private:
  static GenerationInput padded(const TokenLists& prompts, int64_t copies, at::Device device);

  const TextModel& model_;
  const bool uses_cache_;
  GenerationInput all_;  // of all tokens so far; of an encoder-decoder, the decoder's
  int64_t given_ = 0;    // tokens of each row that the cache has
};

GenerationInput Rows::padded(const TokenLists& prompts, int64_t copies, at::Device device) {
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

Rows::Rows(const TextModel& model, const TokenLists& prompts, int64_t copies, bool uses_cache)
    : model_(model), uses_cache_(uses_cache), all_(padded(prompts, copies, model.device)) {
  if (!model.encode) return;
  const int64_t first = model.encode(all_);
  all_ = {at::full({all_.tokens.size(0), 1}, first, all_.tokens.options())};
}

at::Tensor Rows::logits() {
  GenerationInput input = all_;
  input.uses_cache = uses_cache_;
  if (uses_cache_) {
    const int64_t length = all_.tokens.size(1);
    input.tokens = all_.tokens.narrow(1, given_, length - given_);
    given_ = length;
  }
  return model_.next_logits(input).to(at::kCPU, at::kFloat);
}

void Rows::append(const std::vector<int64_t>& tokens) {
  all_.tokens = at::cat({all_.tokens, numbers(tokens, model_.device).unsqueeze(1)}, 1);
  if (all_.mask.defined()) all_.mask = at::cat({all_.mask, at::ones({all_.mask.size(0), 1}, all_.mask.options())}, 1);
}

void Rows::reorder(const std::vector<int64_t>& rows) {
  const at::Tensor order = numbers(rows, model_.device);
  all_.tokens = all_.tokens.index_select(0, order);
  if (all_.mask.defined()) all_.mask = all_.mask.index_select(0, order);
  model_.reorder(order);
}

// The largest logit of each row that still grows: one that is not finite leaves no likeliest token, and no probabilities.
// `rows_of_prompt` rows in a row are of one prompt.
void require_finite(const at::Tensor& logits, const std::vector<bool>& has_ended, int64_t rows_of_prompt, int64_t step) {
  const at::Tensor largest = logits.amax(1).contiguous();  // NaN where one of them is
  for (int64_t row = 0; row < largest.size(0); ++row) {
    const float value = largest.const_data_ptr<float>()[row];
    const int64_t prompt = row / rows_of_prompt;
    if (std::isfinite(value) || has_ended[static_cast<size_t>(prompt)]) continue;
    throw Error(ErrorCode::kNonFinite,
                formatted("generate: the largest of the model's logits is {} for token {} after prompt {}", value, step, prompt),
                "look for NaN in the weights, or for an overflow of a 16-bit model: fp16 ends at 65504, bf16 and fp32 do not");
  }
}

bool stops(const GenerateOptions& options, int64_t token) {
  return std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) != options.stop_tokens.end();
}

TokenLists one_by_one(const TextModel& model, const TokenLists& prompts, const GenerateOptions& options) {
  Rows rows(model, prompts, 1, options.use_cache);
  NextToken next(options, prompts.size());
  TokenLists texts(prompts.size());
  std::vector<bool> has_ended(prompts.size());
  for (int64_t step = 0; step < options.max_new_tokens; ++step) {
    const at::Tensor logits = rows.logits();
    require_finite(logits, has_ended, 1, step);
    const std::vector<int64_t> tokens = next(logits);
    for (size_t row = 0; row < prompts.size(); ++row) {
      if (has_ended[row]) continue;
      texts[row].push_back(tokens[row]);
      has_ended[row] = stops(options, tokens[row]);
    }
    if (std::all_of(has_ended.begin(), has_ended.end(), [](bool ended) { return ended; })) break;
    if (step + 1 < options.max_new_tokens) rows.append(tokens);
  }
  return texts;
}

TokenLists by_beams(const TextModel& model, const TokenLists& prompts, const GenerateOptions& options) {
  const int64_t count = options.num_beams;
  Rows rows(model, prompts, count, options.use_cache);
  std::vector<Beams> beams(prompts.size(), Beams(options));
  const auto all_are_done = [&] {
    return std::all_of(beams.begin(), beams.end(), [](const Beams& one) { return one.is_done(); });
  };
  for (int64_t step = 0;; ++step) {
    const at::Tensor logits = rows.logits();
    std::vector<bool> has_ended;
    for (const Beams& one : beams) has_ended.push_back(one.is_done());
    require_finite(logits, has_ended, count, step);
    const at::Tensor log_probabilities = logits.log_softmax(-1);
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

[[noreturn]] void refuse(const std::string& what, const std::string& next = "") {
  throw Error(ErrorCode::kArgument, "generate: " + what, next);
}

}  // namespace

void check(const GenerateOptions& options, const TokenLists& prompts, int64_t positions, int64_t vocabulary) {
  if (options.max_new_tokens < 1) refuse(formatted("max_new_tokens is {}", options.max_new_tokens), "ask for at least 1");
  if (options.num_beams < 1) refuse(formatted("num_beams is {}", options.num_beams), "1 is a search without beams");
  if (!std::isfinite(options.length_penalty))
    refuse(formatted("length_penalty is {}", options.length_penalty), "1 divides a beam's score by its length, 0 does not");
  if (options.num_beams > 1 && options.sample)
    refuse("beams are not drawn, and sample is true with num_beams above 1", "choose one of the two");
  if (!(options.temperature > 0))
    refuse(formatted("temperature is {}", options.temperature), "it must be above 0; sample = false takes the likeliest token");
  if (options.top_k < 0) refuse(formatted("top_k is {}", options.top_k), "0 draws among all tokens");
  if (!(options.top_p > 0 && options.top_p <= 1))
    refuse(formatted("top_p is {}", options.top_p), "it must be above 0, and at most 1");
  for (const int64_t token : options.stop_tokens)
    if (token < 0 || (vocabulary > 0 && token >= vocabulary))
      refuse(formatted("stop_tokens has {}, and {}", token,
                       vocabulary > 0 ? formatted("the model's vocabulary is 0 to {}", vocabulary - 1)
                                      : std::string("no token is negative")),
             "no text would ever end by it: name the end token of this model's tokenizer");
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) refuse(formatted("prompt {} is empty", i), "begin it with the model's token for a text's begin");
    const auto length = static_cast<int64_t>(prompts[i].size());
    if (positions > 0 && options.max_new_tokens > positions - length)
      refuse(formatted("prompt {} has {} tokens, and with max_new_tokens {} that is more than the model's {} positions", i,
                       length, options.max_new_tokens, positions),
             "shorten it, or lower max_new_tokens");
    for (size_t place = 0; place < prompts[i].size(); ++place) {
      const int64_t token = prompts[i][place];
      if (token < 0 || (vocabulary > 0 && token >= vocabulary))
        refuse(formatted("prompt {} has token {} at place {}, and {}", i, token, place,
                         vocabulary > 0 ? formatted("the model's vocabulary is 0 to {}", vocabulary - 1)
                                        : std::string("no token is negative")),
               "use the tokenizer of this model; labels of -100 and padding do not belong into prompts");
    }
  }
}

TokenLists generate(const TextModel& model, const TokenLists& prompts, const GenerateOptions& options) {
  check(options, prompts, model.positions, model.vocabulary);
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
  // A module's train() sets those below it, too: from the outside in.
  for (const auto& [part, was_training] : modes_)
    if (part->is_training() != was_training) part->train(was_training);
}

}  // namespace gannet::detail
