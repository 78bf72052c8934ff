// Corpus BLEU (Papineni et al. 2002) with the defaults of sacrebleu 2: n-grams up to 4, "13a"
// tokens, exponential smoothing, one reference per text.
//
//   double score = translation::bleu({"two hundred"}, {"two hundred and one"});        // 0 to 100
#pragma once

#include <string>
#include <vector>

namespace translation {

enum class BleuTokens {
  k13a,   // mteval-v13a: punctuation is separated from words
  kNone,  // tokens are separated by whitespace
};

/// The n-gram matches are clipped by the reference's count and summed over all texts before the
/// division. The k-th order without a match counts as 1 / 2^k matches; if no order has a match, or no
/// text has 4 tokens, the score is 0. If the texts are shorter than the references, the score is
/// multiplied by exp(1 - references / texts), in tokens. Throws Error(kArgument) if the numbers of texts differ.
double bleu(const std::vector<std::string>& texts, const std::vector<std::string>& references,
            BleuTokens tokens = BleuTokens::k13a);

/// Splits a text into its tokens.
std::vector<std::string> bleu_tokens(const std::string& text, BleuTokens tokens);

}  // namespace translation
