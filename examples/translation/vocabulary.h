// T5's vocabulary: a SentencePiece model (spiece.model), as its tokenizer in transformers uses it.
//
//   translation::Vocabulary::train(sentences, 128, "out/spiece.model");
//   translation::Vocabulary vocabulary("out/spiece.model");
//   std::vector<int64_t> tokens = vocabulary.encode("two hundred", 64);        // the last one ends the text
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
  /// Throws Error(kNotFound), and Error(kCorrupt) for a file that is no SentencePiece model or has no token that ends a text.
  explicit Vocabulary(const std::string& path);
  ~Vocabulary();
  Vocabulary(const Vocabulary&) = delete;

  /// A unigram model with T5's first tokens: 0 pads, 1 ends a text, 2 is unknown. It has at most `size` pieces; few sentences
  /// have fewer. The file is there whole or not at all. Throws Error(kArgument) where SentencePiece cannot train on them.
  static void train(const std::vector<std::string>& sentences, int64_t size, const std::string& path);

  /// The pieces of a text and the token that ends it, cut to `longest` in all.
  std::vector<int64_t> encode(const std::string& text, int64_t longest) const;
  /// Text of tokens; those that pad, end a text or are unknown are left out, as are numbers that no piece has (labels of -100,
  /// T5's sentinels).
  std::string decode(const std::vector<int64_t>& tokens) const;

  int64_t size() const;  ///< pieces. A model's vocabulary may have more: T5's has 100 sentinels and is rounded up
  int64_t pad() const;
  int64_t end() const;

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> pieces_;
};

}  // namespace translation
