// Beam search for one prompt: the running beams, and the best whole texts so far. Values in, values out; the model's logits come
// from outside.
//
//   Beams beams(options);
//   while (!beams.is_done()) { beams.advance(log_probabilities); ... beams.origins(), beams.last_tokens() ... }
//   beams.best();
//
// The rules are those of transformers 5: of each step's candidates, as many are looked at as leave num_beams running ones even if
// every beam meets all stop tokens; only the num_beams best of them may end; a score is the sum of the log-probabilities over
// length^length_penalty.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/generate.h>

#include <cstdint>
#include <vector>

namespace gannet::generation {

class Beams {
 public:
  // max_new_tokens: of this prompt's texts.
  Beams(const GenerateOptions& options, int64_t max_new_tokens);

  // log_probabilities: [num_beams, vocabulary] fp32 on the CPU, of the tokens after each running beam.
  void advance(const at::Tensor& log_probabilities);
  bool is_done() const { return is_done_; }
  // Of each running beam: the one that it continues, and with which token.
  const std::vector<int64_t>& origins() const { return origins_; }
  const std::vector<int64_t>& last_tokens() const { return last_tokens_; }
  const std::vector<int64_t>& best() const { return whole_.front().tokens; }

 private:
  struct Text {
    std::vector<int64_t> tokens;
    float score = 0;
    bool is_whole = false;
  };
  float penalised(float sum, size_t length) const;
  void end_texts(const std::vector<Text>& candidates, const std::vector<bool>& ends);

  const GenerateOptions& options_;
  int64_t max_new_tokens_;
  std::vector<Text> running_;  // [num_beams] by falling score, the sum of log-probabilities
  std::vector<Text> whole_;    // [num_beams] by falling score, penalised
  std::vector<int64_t> origins_, last_tokens_;
  bool is_done_ = false;
  bool can_improve_ = true;
};

}  // namespace gannet::generation
