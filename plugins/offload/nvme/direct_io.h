// Whether the files of a job can be read and written past the page cache.
#pragma once

#include <string>

#include "job_folder.h"

namespace nvme {

struct DirectIo {
  bool possible = true;
  std::string warning;  // why not, and what it means
};
DirectIo try_direct_io(const JobFolder& folder);

}  // namespace nvme
