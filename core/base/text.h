// Small services on text: what a terminal may show, edit distance for "did you mean", lower case, splitting, joining, sizes,
// shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gannet {

std::string lower(std::string_view text);
std::vector<std::string> split(std::string_view text, char separator);  // empty parts dropped
std::string join(const std::vector<std::string>& parts, std::string_view separator);

/// `text` as a terminal may show it: control characters, direction marks and bytes that are not UTF-8 become "\x1b". Text
/// from a file or a plugin that nobody has judged yet is printed through this. A message keeps its line breaks and tabs.
enum class Lines { kOne, kMany };
std::string printable(std::string_view text, Lines lines = Lines::kOne);

std::string size_text(uint64_t bytes);                         // "1.5 GiB"
std::optional<uint64_t> parse_bytes(const std::string& text);  // "5GB", "500MB", "2GiB" or a number of bytes; null: no size
std::string short_number(double number);                       // "0.00025", "1e-07": six digits at most
std::string in_quotes(std::string_view text);                  // "'text'"
std::string shape_text(std::span<const int64_t> shape);        // "[2, 3]"

/// Damerau-Levenshtein distance (insertions, deletions, substitutions, swaps of neighbours).
size_t edit_distance(std::string_view a, std::string_view b);

/// The candidates nearest to `word`, best first: those whose first words it is ("loss" of "loss_scale") or that have all of its
/// words ("bucket_size" of "reduce_bucket_size"), and none else that differs in more than a third of its letters (at least 2 are
/// allowed). At most `limit`.
std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates, size_t limit = 1);

/// "; did you mean 'x'?", "; did you mean 'x_y' or 'x_z'?" where "x" begins up to four, or "" when nothing is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace gannet
