// Beam search for one prompt: the running beams, and the best complete texts so far. It never runs
// the model; the caller passes the log-probabilities.
//
//   Beams beams(options);
//   while (!beams.is_done()) { beams.advance(log_probabilities); ... beams.origins(), beams.last_tokens() ... }
//   beams.best();
//
// The rules are those of transformers 5. Each step considers enough candidates for num_beams of
// them to keep running, even if every beam has a candidate for each stop token. Only the num_beams
// best candidates may end. A score is the sum of the log-probabilities divided by
// length^length_penalty.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/generate.h>

#include <cstdint>
#include <vector>

namespace gannet::generation {

class Beams {
 public:
  // max_new_tokens: the maximum number of tokens to generate for this prompt.
  Beams(const GenerateOptions& options, int64_t max_new_tokens);

  // log_probabilities: [num_beams, vocabulary] fp32 on the CPU, for the token after each running
  // beam.
  void advance(const at::Tensor& log_probabilities);
  bool is_done() const { return is_done_; }
  // For each running beam, the index of the beam that it continues, and the token that it adds.
  const std::vector<int64_t>& origins() const { return origins_; }
  const std::vector<int64_t>& last_tokens() const { return last_tokens_; }
  const std::vector<int64_t>& best() const { return whole_.front().tokens; }

 private:
  struct BeamText {
    std::vector<int64_t> tokens;
    float score = 0;
    bool is_whole = false;
  };
  float penalised(float sum, size_t length) const;
  void end_texts(const std::vector<BeamText>& candidates, const std::vector<bool>& ends);

  const GenerateOptions& options_;
  int64_t max_new_tokens_;
  std::vector<BeamText> running_;  // [num_beams] by descending score, which is the sum of log-probabilities
  std::vector<BeamText> whole_;    // [num_beams] by descending score, divided by the length penalty
  std::vector<int64_t> origins_, last_tokens_;
  bool is_done_ = false;
  bool can_improve_ = true;
};

}  // namespace gannet::generation
