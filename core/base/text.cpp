#include "base/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <utility>

#include "base/format.h"
#include "base/utf8.h"

namespace gannet {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& letter : result) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return result;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string result;
  for (const auto& part : parts) {
    if (!result.empty()) result += separator;
    result += part;
  }
  return result;
}

namespace {

// Whether a character is one of C0, DEL and C1, or one of the marks U+200E, U+200F, U+202A to
// U+202E and U+2066 to U+2069, which reorder text on a terminal.
bool is_control(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7F;
  if (character.size() == 2) return byte(0) == 0xC2 && byte(1) < 0xA0;
  if (character.size() != 3 || byte(0) != 0xE2) return false;
  if (byte(1) == 0x80) return byte(2) == 0x8E || byte(2) == 0x8F || (byte(2) >= 0xAA && byte(2) <= 0xAE);
  return byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9;
}

}  // namespace

std::string printable(std::string_view text, Lines lines) {
  std::string result;
  while (!text.empty()) {
    const size_t bytes = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<size_t>(bytes, 1));
    text.remove_prefix(character.size());
    const bool is_layout = lines == Lines::kMany && (character == "\n" || character == "\t");
    if (is_layout || (bytes > 0 && !is_control(character))) {
      result += character;
      continue;
    }
    for (const char byte : character) {
      char code[5];
      std::snprintf(code, sizeof(code), "\\x%02x", static_cast<unsigned char>(byte));
      result += code;
    }
  }
  return result;
}

std::string size_text(uint64_t bytes) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1024 && unit < 6; ++unit) size /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", size, units[unit]);
  return text;
}

std::optional<uint64_t> parse_bytes(const std::string& text) {
  constexpr std::pair<const char*, uint64_t> kUnits[] = {{"", 1},
                                                         {"b", 1},
                                                         {"kb", 1'000},
                                                         {"mb", 1'000'000},
                                                         {"gb", 1'000'000'000},
                                                         {"tb", 1'000'000'000'000},
                                                         {"kib", 1ull << 10},
                                                         {"mib", 1ull << 20},
                                                         {"gib", 1ull << 30},
                                                         {"tib", 1ull << 40}};
  double number = 0;
  const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit = lower(std::string_view(rest, static_cast<size_t>(text.data() + text.size() - rest)));
  if (code == std::errc() && number > 0)
    for (const auto& [name, factor] : kUnits)
      if (unit == name && number * static_cast<double>(factor) < 9e18)
        return std::max<uint64_t>(1, static_cast<uint64_t>(number * static_cast<double>(factor)));
  return std::nullopt;
}

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", number);
  return text;
}

std::string in_quotes(std::string_view text) { return formatted("'{}'", text); }

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

namespace {

// Whether a name begins with `word` (at least 4 letters) and `word` ends at a word boundary of the
// name, as "train_micro_batch_size" does in "train_micro_batch_size_per_gpu".
bool is_beginning(std::string_view word, std::string_view name) {
  return word.size() >= 4 && name.size() > word.size() && name.starts_with(word) &&
         (name[word.size()] == '_' || name[word.size()] == '-');
}

// Whether `word` consists of at least two, but not all, of a name's words, in the same order, as
// "warmup_steps" does for "warmup_num_steps".
bool is_part(std::string_view word, std::string_view name) {
  const auto words = split(word, '_'), all = split(name, '_');
  if (words.size() < 2 || words.size() >= all.size()) return false;
  size_t met = 0;
  for (const std::string& one : all) met += met < words.size() && one == words[met];
  return met == words.size();
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table are kept, because a transposition looks two rows back.
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates, size_t limit) {
  const std::string folded = lower(word);
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const auto& candidate : candidates) {
    const std::string name = lower(candidate);
    const size_t distance = edit_distance(folded, name);
    // A prefix ranks after a single typo and before a distance of 2; a part ties with the latter.
    if (distance > 1 && is_beginning(folded, name))
      ranked.emplace_back(2, candidate);
    else if (distance > 1 && is_part(folded, name))
      ranked.emplace_back(3, candidate);
    else if (distance <= std::max<size_t>(2, folded.size() / 3) && distance < folded.size())
      ranked.emplace_back(distance <= 1 ? distance : distance + 1, candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> result;
  for (size_t i = 0; i < ranked.size() && result.size() < limit; ++i) result.push_back(ranked[i].second);
  return result;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  std::vector<std::string> near = nearest(word, candidates, 5);
  if (near.empty()) return "";
  // If up to four of the nearest names contain the given words, suggests all of these names.
  const std::string folded = lower(word);
  const auto share = [&](bool (*is_of)(std::string_view, std::string_view)) {
    const auto is_other = [&](const std::string& name) { return !is_of(folded, lower(name)); };
    const auto others = std::find_if(near.begin(), near.end(), is_other);
    if (others == near.begin() || others - near.begin() > 4) return false;
    near.erase(others, near.end());
    return true;
  };
  if (!share(is_beginning) && !share(is_part)) near.resize(1);
  for (std::string& name : near) name = "'" + name + "'";
  const std::string last = near.back();
  near.pop_back();
  return "; did you mean " + (near.empty() ? "" : join(near, ", ") + " or ") + last + "?";
}

}  // namespace gannet
