// A folder that appears complete or not at all.
#pragma once

#include <string>
#include <vector>

namespace gannet::convert {

class StagedFolder {
 public:
  // Creates <out>/.<name>.tmp-<number>, which no other process uses, whatever its machine or container. Throws the errors of
  // check_out_folder(), Error(kArgument) if `out` holds Gannet's checkpoints, whose `latest` commit() would replace, and
  // Error(kIo).
  StagedFolder(std::string out, std::string name);
  ~StagedFolder();  // removes the folder unless it was committed, and `out` if it was created here and is empty
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::string& path() const { return staged_; }
  // The staged folders that were in `out` before: of killed processes, or of others that still write.
  const std::vector<std::string>& others() const { return others_; }
  // Syncs the folder, renames it, and then replaces <out>/<latest>, which holds the name. Throws Error(kArgument) if
  // another process has made <out>/<name> in the meantime.
  void commit(const std::string& latest);

 private:
  std::string out_, name_, staged_;
  std::vector<std::string> others_;
  bool is_new_ = false, is_committed_ = false;
};

}  // namespace gannet::convert
