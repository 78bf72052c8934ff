// Pairs of sentences in files as run_translation.py reads them: a line of JSON for each,
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

/// The pairs of a file, at most `limit`. Throws Error(kNotFound), and Error(kArgument) with file and line.
std::vector<Pair> read_pairs(const std::string& path, const std::string& source_lang, const std::string& target_lang,
                             std::optional<int64_t> limit = {});

}  // namespace translation
