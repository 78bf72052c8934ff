// Ensures that only one job at a time saves into a folder: <folder>/.gannet.lock is held with flock
// and contains a record of its owner.
//
// If flock works, it decides, because the lock ends with its process. On some mounts (nolock,
// localflock) flock is local to each machine and wrongly succeeds; there the record decides. A live
// process on this host is recognised by its id and start time, and one on another host by its
// heartbeat: the owner updates the file's modification time, and a newcomer watches it for a while.
// A new lock file is created with its record in it, by a hard link. Of two creators, only one
// succeeds, whatever flock reports and however long one of them is delayed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "files/io.h"

namespace gannet::checkpoint {

struct LockTimes {
  std::chrono::milliseconds heartbeat{5'000};  // how often the owner updates the file's mtime
  std::chrono::milliseconds watch{16'000};     // how long a newcomer waits for the next heartbeat of an owner on another host
  std::chrono::seconds stale{600};             // an owner on another host with an older heartbeat is presumed dead
};

class FolderLock {
 public:
  // Throws Error(kUnavailable) naming host, process and start time if a live job holds the lock,
  // and Error(kIo) if the lock file cannot be used. Takes over a dead job's lock, even if one of
  // its child processes still holds the file, or flock is unavailable.
  explicit FolderLock(const std::string& folder, const LockTimes& times = {});
  ~FolderLock();  // removes the lock file
  FolderLock(const FolderLock&) = delete;

 private:
  void start_heartbeat(std::chrono::milliseconds period);

  std::string path_;
  // Holds the flock; the heartbeat thread updates its modification time.
  files::Descriptor file_;
  int process_ = 0;  // a forked child must not remove its parent's lock
  std::thread heartbeat_;
  // Guards is_ending_.
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_ending_ = false;
};

// Whether this process already holds the folder's lock, for another engine of the same program.
bool is_locked_here(const std::string& folder);

}  // namespace gannet::checkpoint
