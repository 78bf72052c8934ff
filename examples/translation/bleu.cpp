#include "bleu.h"

#include <gannet/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string_view>

namespace translation {
namespace {

constexpr size_t kOrders = 4;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
// mteval's class [\{-\~\[-\` -\&\(-\+\:-\@\/]: ASCII punctuation except ' , - and . (space is
// included).
bool is_apart(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// Applies a rule to pairs of characters: if `applies` accepts a pair, `put` appends it with spaces,
// and the search resumes after the pair, as in a regular expression search.
template <class Applies, class Put>
std::string by_pairs(const std::string& text, Applies applies, Put put) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && applies(text[i], text[i + 1])) {
      put(out, text[i], text[i + 1]);
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Tokenizes in the same way, and in the same order, as mteval-v13a.pl.
std::string separated(std::string text) {
  replace_all(text, "<skipped>", "");
  replace_all(text, "-\n", "");
  replace_all(text, "\n", " ");
  replace_all(text, "&quot;", "\"");
  replace_all(text, "&amp;", "&");
  replace_all(text, "&lt;", "<");
  replace_all(text, "&gt;", ">");
  text = " " + text + " ";
  std::string apart;
  for (const char c : text)
    if (is_apart(c))
      apart += {' ', c, ' '};
    else
      apart += c;
  const auto is_stop = [](char c) { return c == '.' || c == ','; };
  // Separates periods and commas that are not preceded by a digit, then those that are not followed
  // by one, then dashes after a digit.
  text = by_pairs(
      apart, [&](char a, char b) { return !is_digit(a) && is_stop(b); },
      [](std::string& out, char a, char b) { out += {a, ' ', b, ' '}; });
  text = by_pairs(
      text, [&](char a, char b) { return is_stop(a) && !is_digit(b); },
      [](std::string& out, char a, char b) { out += {' ', a, ' ', b}; });
  return by_pairs(
      text, [&](char a, char b) { return is_digit(a) && b == '-'; },
      [](std::string& out, char a, char b) { out += {a, ' ', b, ' '}; });
}

using Counts = std::map<std::vector<std::string>, int64_t>;

Counts n_grams(const std::vector<std::string>& tokens, size_t order) {
  Counts counts;
  for (size_t i = 0; i + order <= tokens.size(); ++i)
    ++counts[{tokens.begin() + static_cast<ptrdiff_t>(i), tokens.begin() + static_cast<ptrdiff_t>(i + order)}];
  return counts;
}

}  // namespace

std::vector<std::string> bleu_tokens(const std::string& text, BleuTokens tokens) {
  std::istringstream words(tokens == BleuTokens::k13a ? separated(text) : text);
  std::vector<std::string> found;
  for (std::string word; words >> word;) found.push_back(word);
  return found;
}

double bleu(const std::vector<std::string>& texts, const std::vector<std::string>& references, BleuTokens tokens) {
  if (texts.size() != references.size())
    throw gannet::Error(
        gannet::ErrorCode::kArgument,
        "bleu: " + std::to_string(texts.size()) + " texts for " + std::to_string(references.size()) + " references",
        "give one reference for each text");
  std::array<int64_t, kOrders> matches{}, totals{};
  int64_t length = 0, reference_length = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto words = bleu_tokens(texts[i], tokens), wanted = bleu_tokens(references[i], tokens);
    length += static_cast<int64_t>(words.size());
    reference_length += static_cast<int64_t>(wanted.size());
    for (size_t order = 1; order <= kOrders; ++order) {
      const Counts there = n_grams(wanted, order);
      for (const auto& [gram, count] : n_grams(words, order)) {
        totals[order - 1] += count;
        if (const auto found = there.find(gram); found != there.end()) matches[order - 1] += std::min(count, found->second);
      }
    }
  }
  if (std::all_of(matches.begin(), matches.end(), [](int64_t count) { return count == 0; })) return 0;
  double smoothing = 1, sum = 0;
  for (size_t order = 0; order < kOrders; ++order) {
    if (totals[order] == 0) return 0;  // no text has enough tokens: avoids a division by zero
    double found = static_cast<double>(matches[order]);
    if (matches[order] == 0) found = 1 / (smoothing *= 2);
    sum += std::log(100 * found / static_cast<double>(totals[order]));
  }
  const double brevity =
      length < reference_length ? std::exp(1 - static_cast<double>(reference_length) / static_cast<double>(length)) : 1;
  return brevity * std::exp(sum / kOrders);
}

}  // namespace translation
