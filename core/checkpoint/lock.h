// One job at a time saves into a folder: <folder>/.gannet.lock is held with flock and says whose it is.
#pragma once

#include <string>

#include "checkpoint/files.h"

namespace gannet::checkpoint {

class FolderLock {
 public:
  // Throws Error(kUnavailable) naming host, process and since when, where a living job has it. A dead job's is taken over: flock
  // ends with its process, and where a child that it left still holds the file, or flock is not to be had, the process id and
  // its start time tell.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();  // removes the file
  FolderLock(const FolderLock&) = delete;

 private:
  std::string path_;
  Descriptor file_;
  int process_ = 0;  // a forked child must not remove what its parent holds
};

}  // namespace gannet::checkpoint
