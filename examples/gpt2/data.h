// Tokens of a text in memory, and the samples that are cut from it.
//
//   auto [train, validation] = gpt2::Tokens::from_file("tokens.bin", 2).split(0.1);
//   auto batch = train.batch(first_sample, 8, 128);   // inputs and targets, [8, 128] int64
//
// Sample i is the tokens [i T, i T + T] (one more than T: inputs, and targets shifted by one); positions wrap round at the end.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gpt2 {

struct Batch {
  at::Tensor inputs, targets;  // [B, T] int64
};

class Tokens {
 public:
  /// `token_bytes` of 1 or 2 (little-endian) each. Throws gannet::Error on a file that is missing, empty or of odd length.
  static Tokens from_file(const std::string& path, int token_bytes);
  /// Debian's common licence texts, or the documents of this repository where there are none; a byte is a token.
  static Tokens from_this_machine();

  int64_t size() const { return size_; }
  const std::string& source() const { return source_; }
  int64_t operator[](int64_t position) const;
  /// All but the last `fraction`, and that.
  std::pair<Tokens, Tokens> split(double fraction) const;
  Batch batch(int64_t first_sample, int64_t samples, int64_t length) const;

  /// Throws gannet::Error(kMismatch) naming the first token that a model with this vocabulary lacks.
  void check(int64_t vocabulary) const;
  /// Entropy in nats of a token drawn by its frequency: the loss of a model that has learnt nothing else.
  double unigram_entropy() const;

 private:
  Tokens(std::vector<char> bytes, int token_bytes, std::string source);

  std::shared_ptr<const std::vector<char>> bytes_;
  int token_bytes_ = 1;
  std::string source_;
  int64_t begin_ = 0, size_ = 0;  // in tokens
};

}  // namespace gpt2
