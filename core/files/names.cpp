#include "files/names.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <string_view>
#include <unordered_set>

#include "base/format.h"
#include "base/text.h"

namespace gannet::files {
namespace {

// Returns the prefix that turns at least nine in ten names of `shorter` into names of `longer`; ""
// if there is none. Not all names have to match, because a tied weight or a buffer may be in only
// one of the lists.
std::string prefix_of(const std::vector<std::string>& longer, const std::vector<std::string>& shorter) {
  const std::unordered_set<std::string_view> wanted(shorter.begin(), shorter.end());
  std::map<std::string_view, size_t> fits;  // number of matching names, by prefix
  for (const std::string_view name : longer)
    for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1))
      if (wanted.contains(name.substr(dot + 1))) ++fits[name.substr(0, dot + 1)];
  const auto best = std::max_element(fits.begin(), fits.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return best == fits.end() || best->second * 10 < wanted.size() * 9 ? "" : std::string(best->first);
}

// Quotes a path for a shell.
std::string in_shell(const std::string& path) {
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) || std::strchr("/._-+=,:@%", c) || c >= 0x80; };
  if (std::all_of(path.begin(), path.end(), is_plain)) return path;
  std::string quoted = "'";
  for (const char c : path) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::string some_names(const std::vector<std::string>& names, size_t most) {
  if (names.empty()) return "none";
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), most)));
  return join(first, ", ") + (names.size() > most ? formatted(" and {} more", names.size() - most) : "");
}

std::string rename_that_fits(const std::vector<std::string>& in_file, const std::vector<std::string>& in_model) {
  if (const std::string prefix = prefix_of(in_file, in_model); !prefix.empty()) return prefix + "=";
  if (const std::string prefix = prefix_of(in_model, in_file); !prefix.empty()) return "=" + prefix;
  return "";
}

std::string rename_advice(const std::string& path, const std::vector<std::string>& in_file,
                          const std::vector<std::string>& in_model) {
  const std::string rename = rename_that_fits(in_file, in_model);
  if (rename.empty()) return "";
  const bool has_more = rename.ends_with('=');
  return formatted("the names fit {} the prefix '{}': `gannet checkpoint import {} OUT --rename {}` {}",
                   has_more ? "without" : "with", has_more ? rename.substr(0, rename.size() - 1) : rename.substr(1),
                   in_shell(path), rename, has_more ? "takes it away" : "puts it in front");
}

}  // namespace gannet::files
