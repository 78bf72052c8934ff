// Sentence pairs in files in run_translation.py's format, one JSON object per line:
//   {"translation": {"en": "two hundred", "ro": "două sute"}}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace translation {

struct Pair {
  std::string source, target;
};

/// Reads at most `limit` pairs. Throws Error(kNotFound), or an Error(kArgument) with file and line.
std::vector<Pair> read_pairs(const std::string& path, const std::string& source_lang, const std::string& target_lang,
                             std::optional<int64_t> limit = {});

}  // namespace translation
