// Tests direct I/O on a job's files. Throws Failure if the test write fails for another reason.
#pragma once

#include <string>

#include "job_folder.h"

namespace nvme {

struct DirectIo {
  bool possible = true;
  std::string warning;  // why direct I/O is impossible, and the consequences
};
DirectIo try_direct_io(const JobFolder& folder);

}  // namespace nvme
