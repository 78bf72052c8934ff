// What options change about a row's logits before its next token is chosen: a penalty on repetition, sequences that may not come
// twice, a least length. Rules and their order are those of transformers 5; beams get log-probabilities in place of logits.
//
//   Adjustment adjust(options);
//   if (adjust.is_needed()) adjust(values, vocabulary, seen, prompt_length);
#pragma once

#include <gannet/generate.h>

#include <cstdint>
#include <vector>

namespace gannet::generation {

// The longest text after a prompt of so many tokens; an encoder-decoder's prompt is the decoder's first token.
int64_t longest_text(const GenerateOptions& options, int64_t prompt_length);

class Adjustment {
 public:
  explicit Adjustment(const GenerateOptions& options) : options_(options) {}

  bool is_needed() const;
  // values: [vocabulary], changed in place. seen: the row's tokens so far, of which the first prompt_length are not its text.
  void operator()(float* values, int64_t vocabulary, const std::vector<int64_t>& seen, size_t prompt_length) const;

 private:
  void penalise(float* values, int64_t vocabulary, const std::vector<int64_t>& seen) const;
  void ban_repeated(float* values, int64_t vocabulary, const std::vector<int64_t>& seen) const;

  const GenerateOptions& options_;
};

}  // namespace gannet::generation
