// Tests whether a job's files can be read and written past the page cache. Throws Failure if the test write fails otherwise.
#pragma once

#include <string>

#include "job_folder.h"

namespace nvme {

struct DirectIo {
  bool possible = true;
  std::string warning;  // why it is not possible, and what follows from that
};
DirectIo try_direct_io(const JobFolder& folder);

}  // namespace nvme
