// A folder that appears complete or not at all.
#pragma once

#include <string>

namespace gannet::convert {

class StagedFolder {
 public:
  // Creates <out>/.<name>.tmp-<pid>. Throws Error(kArgument) if <out>/<name> exists, Error(kIo).
  StagedFolder(std::string out, std::string name);
  ~StagedFolder();  // removes the folder unless it was committed, and `out` if it was created here and is empty
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::string& path() const { return staged_; }
  // Syncs the folder, renames it, and then replaces <out>/<latest>, which holds the name.
  void commit(const std::string& latest);

 private:
  std::string out_, name_, staged_;
  bool is_new_ = false, is_committed_ = false;
};

}  // namespace gannet::convert
