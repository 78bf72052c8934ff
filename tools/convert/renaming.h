// Replaces prefixes of names, such as "transformer." by "". The first rule that matches a name is
// used.
#pragma once

#include <gannet/error.h>

#include <string>
#include <utility>
#include <vector>

namespace gannet::convert {

using Renames = std::vector<std::pair<std::string, std::string>>;

class Renaming {
 public:
  explicit Renaming(const Renames& renames) : renames_(renames), used_(renames.size()) {}

  std::string operator()(const std::string& name) {
    for (size_t i = 0; i < renames_.size(); ++i) {
      if (!name.starts_with(renames_[i].first)) continue;
      used_[i] = true;
      return renames_[i].second + name.substr(renames_[i].first.size());
    }
    return name;
  }

  // Throws Error(kArgument) for a rule that matched no name in the file at `path`.
  void check(const std::string& path) const {
    for (size_t i = 0; i < renames_.size(); ++i)
      if (!used_[i])
        throw Error(ErrorCode::kArgument,
                    path + ": no tensor's name begins with '" + renames_[i].first + "', which --rename names",
                    "see the names with `gannet checkpoint show` after an import without it");
  }

 private:
  const Renames& renames_;
  std::vector<bool> used_;
};

}  // namespace gannet::convert
