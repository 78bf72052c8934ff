// The tokens of a text in memory, and the samples cut from them.
//
//   auto [train, validation] = gpt2::Tokens::from_file("tokens.bin", 2).split(0.1);
//   auto batch = train.batch(first_sample, 8, 128);   // inputs and targets, [8, 128] int64
//
// Sample i is the T + 1 tokens from i T to i T + T: the first T are the inputs, the last T are the
// targets. Positions wrap around at the end of the text.
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
  /// `token_bytes` is 1 or 2 (little-endian). Throws gannet::Error if the file is missing, has fewer
  /// than 2 tokens, or has a size that is not a multiple of `token_bytes`.
  static Tokens from_file(const std::string& path, int token_bytes);
  /// Reads Debian's common licence texts, or this repository's documents if there are none, with
  /// one byte per token.
  static Tokens from_this_machine();

  int64_t size() const { return size_; }
  const std::string& source() const { return source_; }
  int64_t operator[](int64_t position) const;
  /// Splits off the last `fraction` of the tokens. Returns the tokens before it, and then that
  /// fraction. Throws Error(kArgument) if the fraction is above 0, but holds fewer than 2 tokens.
  std::pair<Tokens, Tokens> split(double fraction) const;
  Batch batch(int64_t first_sample, int64_t samples, int64_t length) const;

  /// Throws a gannet::Error(kMismatch) that names the first token outside a vocabulary of this
  /// size.
  void check(int64_t vocabulary) const;
  /// The entropy, in nats, of the token frequencies: the loss of a model that has learnt nothing
  /// but these frequencies.
  double unigram_entropy() const;

 private:
  Tokens(std::vector<char> bytes, int token_bytes, std::string source);

  std::shared_ptr<const std::vector<char>> bytes_;
  int token_bytes_ = 1;
  std::string source_;
  int64_t begin_ = 0, size_ = 0;  // in tokens
};

}  // namespace gpt2
