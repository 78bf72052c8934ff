// T5's vocabulary: a SentencePiece model (spiece.model), used like T5's tokenizer in transformers.
//
//   translation::Vocabulary::train(sentences, 128, "out/spiece.model");
//   translation::Vocabulary vocabulary("out/spiece.model");
//   std::vector<int64_t> tokens = vocabulary.encode("two hundred", 64);        // ends with the end token
//   std::string text = vocabulary.decode(tokens);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace translation {

class Vocabulary {
 public:
  /// Throws Error(kNotFound), or Error(kCorrupt) if the file is not a SentencePiece model or lacks
  /// the end token or the pad token.
  explicit Vocabulary(const std::string& path);
  ~Vocabulary();
  Vocabulary(const Vocabulary&) = delete;

  /// Trains a unigram model with T5's first tokens: 0 pads, 1 ends a text, 2 is unknown. It has at
  /// most `size` pieces; few sentences yield fewer. Writes the file atomically. Throws
  /// Error(kArgument) if SentencePiece cannot train on the sentences.
  static void train(const std::vector<std::string>& sentences, int64_t size, const std::string& path);

  /// Returns the pieces of a text and the end token, truncated to `longest` tokens in total.
  std::vector<int64_t> encode(const std::string& text, int64_t longest) const;
  /// Decodes tokens to text. Skips pad, end and unknown tokens, and ids without a piece (-100 in
  /// labels, T5's sentinels).
  std::string decode(const std::vector<int64_t>& tokens) const;

  int64_t size() const;  ///< number of pieces. A model's vocab_size may be larger: T5's adds 100 sentinels and is rounded up
  int64_t pad() const;
  int64_t end() const;

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> pieces_;
};

}  // namespace translation
