// Adjusts a row's logits before its next token is chosen: applies the repetition penalty, and bans
// repeated n-grams and stop tokens before the minimum length. The rules and their order are those
// of transformers 5; beams pass log-probabilities instead of logits.
//
//   Adjustment adjust(options);
//   if (adjust.is_needed()) adjust(values, vocabulary, seen, prompt_length);
#pragma once

#include <gannet/generate.h>

#include <cstdint>
#include <vector>

namespace gannet::generation {

// The maximum number of new tokens after a prompt of `prompt_length` tokens; it may be below 1.
// In an encoder-decoder, the prompt is the decoder's first token.
int64_t longest_text(const GenerateOptions& options, int64_t prompt_length);

class Adjustment {
 public:
  explicit Adjustment(const GenerateOptions& options) : options_(options) {}

  bool is_needed() const;
  // values: [vocabulary], changed in place. seen: the row's tokens so far; the first prompt_length
  // of them belong to the prompt, not to the text.
  void operator()(float* values, int64_t vocabulary, const std::vector<int64_t>& seen, size_t prompt_length) const;

 private:
  void penalise(float* values, int64_t vocabulary, const std::vector<int64_t>& seen) const;
  void ban_repeated(float* values, int64_t vocabulary, const std::vector<int64_t>& seen) const;

  const GenerateOptions& options_;
};

}  // namespace gannet::generation
