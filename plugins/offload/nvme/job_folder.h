// The folder `<nvme_path>/gannet-<id>-rank<r>` that a job's swap files are made in.
//
// A file `lock` in it is locked (flock) for as long as the process lives, whichever way it dies. The swap files are unlinked as
// soon as they are open, so a dead job leaves no data, only its folder; the next job removes it.
#pragma once

#include <cstdint>
#include <string>

#include "file_handle.h"

namespace nvme {

class JobFolder {
 public:
  // Throws Failure(GANNET_INVALID_ARGUMENT) with a sentence where nvme_path is not a folder that can be written in.
  JobFolder(const std::string& nvme_path, uint32_t rank);
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;

  const std::string& nvme_path() const { return nvme_path_; }
  const std::string& path() const { return path_; }
  uint64_t removed() const { return removed_; }  // left-over folders of dead jobs

  // A new file without a name. `flags`: O_DIRECT or 0.
  FileHandle create_file(const std::string& name, int flags) const;

 private:
  std::string nvme_path_, path_;
  FileHandle lock_;
  uint64_t removed_ = 0;
};

}  // namespace nvme
