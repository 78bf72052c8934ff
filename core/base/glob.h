// Shell-style patterns for names: `*` matches any characters, dots included, and `?` matches one.
//
//   matches_glob("h.*.bias", "h.0.attn.bias");             // true
//   nearest_globs("*.biass", {"h.0.bias", "h.0.weight"});  // "; did you mean '*.bias'?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gannet {

bool matches_glob(std::string_view pattern, std::string_view name);

/// Like did_you_mean(), for a pattern that matches none of these dotted names. Suggests names, and
/// patterns that match some of the names.
std::string nearest_globs(std::string_view pattern, const std::vector<std::string>& names);

}  // namespace gannet
