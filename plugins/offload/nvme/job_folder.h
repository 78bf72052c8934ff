// The folder of a job's swap files: `<nvme_path>/gannet-<id>-rank<r>`.
//
// Its file `lock` stays locked (flock) until the process ends, however that happens. Swap files
// are unlinked as soon as they are open, so a dead job leaves only its folder, which the next job
// removes.
#pragma once

#include <cstdint>
#include <string>

#include "file_handle.h"

namespace nvme {

class JobFolder {
 public:
  // Throws Failure, with GANNET_INVALID_ARGUMENT if nvme_path is not a writable folder.
  JobFolder(const std::string& nvme_path, uint32_t rank);
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;

  const std::string& nvme_path() const { return nvme_path_; }
  const std::string& path() const { return path_; }
  uint64_t removed() const { return removed_; }  // number of dead jobs' folders removed

  // Returns an unlinked file; on failure, a closed handle with errno set. `flags`: O_DIRECT or 0.
  FileHandle create_file(const std::string& name, int flags) const;

 private:
  std::string nvme_path_, path_;
  FileHandle lock_;
  uint64_t removed_ = 0;
};

}  // namespace nvme
