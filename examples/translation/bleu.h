// Corpus BLEU (Papineni et al. 2002) as sacrebleu 2 computes it by default: n-grams up to 4, tokens by "13a", exponential
// smoothing, one reference for each text.
//
//   double score = translation::bleu({"two hundred"}, {"two hundred and one"});        // 0 to 100
#pragma once

#include <string>
#include <vector>

namespace translation {

enum class BleuTokens {
  k13a,   // mteval-v13a's: punctuation is apart from words
  kNone,  // what whitespace separates
};

/// Matches of n-grams are clipped by the reference's count, and summed over all texts before they are divided. An order without
/// a match counts as 1 / 2^k matches, k the number of such orders so far; without any match at all the score is 0. A corpus
/// shorter than its references is multiplied by exp(1 - references / texts), in tokens.
/// Throws Error(kArgument) where the numbers of texts differ.
double bleu(const std::vector<std::string>& texts, const std::vector<std::string>& references,
            BleuTokens tokens = BleuTokens::k13a);

/// The tokens of a text.
std::vector<std::string> bleu_tokens(const std::string& text, BleuTokens tokens);

}  // namespace translation
