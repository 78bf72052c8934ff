// Text utilities: printable text for terminals, edit distance for "did you mean", lower case,
// splitting, joining, sizes, shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gannet {

std::string lower(std::string_view text);
std::vector<std::string> split(std::string_view text, char separator);  // empty parts are dropped
std::string join(const std::vector<std::string>& parts, std::string_view separator);

/// Makes `text` safe for a terminal: control characters, direction marks and bytes that are not
/// UTF-8 are escaped as "\x1b". Untrusted text from a file or a plugin is printed through this.
/// With Lines::kMany, line breaks and tabs are kept.
enum class Lines { kOne, kMany };
std::string printable(std::string_view text, Lines lines = Lines::kOne);

std::string size_text(uint64_t bytes);                         // "1.5 GiB"
std::optional<uint64_t> parse_bytes(const std::string& text);  // "5GB", "500MB", "2GiB" or a number of bytes; null: not a size
std::string short_number(double number);                       // "0.00025", "1e-07": at most six digits
std::string in_quotes(std::string_view text);                  // "'text'"
std::string shape_text(std::span<const int64_t> shape);        // "[2, 3]"

/// The optimal string alignment distance (insertions, deletions, substitutions, transpositions of
/// adjacent letters), the restricted form of Damerau-Levenshtein.
size_t edit_distance(std::string_view a, std::string_view b);

/// The candidates nearest to `word`, best first, at most `limit`. A candidate qualifies if its
/// first words are `word` ("loss" for "loss_scale"), if it contains all words of `word`
/// ("bucket_size" for "reduce_bucket_size"), or if it differs in at most a third of the letters (2
/// are always allowed).
std::vector<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates, size_t limit = 1);

/// Returns "; did you mean 'x'?", or "; did you mean 'x_y' or 'x_z'?" if up to four names begin
/// with "x", or "" if nothing is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace gannet
