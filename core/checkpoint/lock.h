// One job at a time saves into a folder: <folder>/.gannet.lock is held with flock and says whose it is.
//
// Where flock works, it decides: it ends with its process. It lies on some mounts (nolock, localflock: each machine has its own),
// and there the record decides. A living process of this host is recognized by its id and start time; one of another host by its
// heartbeat, the file's time, which the owner renews and a newcomer watches for a while. A new lock file appears with its record
// in it, by a hard link; so of two makers one has it, whatever flock says and however long one of them is held up.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "files/io.h"

namespace gannet::checkpoint {

struct LockTimes {
  std::chrono::milliseconds heartbeat{5'000};  // the owner renews the file's time this often
  std::chrono::milliseconds watch{16'000};     // how long a newcomer looks for the next heartbeat of an owner on another host
  std::chrono::seconds stale{600};             // an owner there whose last one is older than this is not waited for
};

class FolderLock {
 public:
  // Throws Error(kUnavailable) naming host, process and since when, where a living job has it. A dead job's is taken over, also
  // where a child that it left still holds the file, or flock is not to be had.
  explicit FolderLock(const std::string& folder, const LockTimes& times = {});
  ~FolderLock();  // removes the file
  FolderLock(const FolderLock&) = delete;

 private:
  void start_heartbeat(std::chrono::milliseconds period);

  std::string path_;
  // Holds the flock; the heartbeat thread renews its modification time.
  files::Descriptor file_;
  int process_ = 0;  // a forked child must not remove what its parent holds
  std::thread heartbeat_;
  // Guards is_ending_.
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_ending_ = false;
};

// Whether this very process has the folder locked: another engine of the same program.
bool is_locked_here(const std::string& folder);

}  // namespace gannet::checkpoint
