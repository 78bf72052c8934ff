// Rank 0's hand on the folder: staging, putting a checkpoint in place, and clearing away. Each step leaves the folder such that a
// kill right after it loses nothing that was complete.
#pragma once

#include <set>
#include <string>

#include "checkpoint/lock.h"
#include "checkpoint/manifest.h"

namespace gannet::checkpoint {

class Folder {
 public:
  // Makes it, locks it, and removes what dead jobs left.
  explicit Folder(std::string path);

  // Throws where <tag> is there and not a checkpoint, or `bytes` do not fit. Gives the folder to write into.
  std::string stage(const std::string& tag, uint64_t bytes);
  void discard(const std::string& staging) noexcept;

  // The staged files and their manifest, whose sequence is at least next_sequence(), become <tag>.
  void commit(const std::string& staging, const Manifest& manifest);
  int64_t next_sequence() const { return next_sequence_; }
  void set_latest(const std::string& tag);
  // Removes complete checkpoints but for the newest `keep`, `tag`, the one that `latest` names, and those of other runs.
  void retain(int64_t keep, const std::string& tag);
  // What was in the folder when it was locked is of this run's past, and no longer another's.
  void adopt() { others_.clear(); }
  // Once, before the first save beside them: that there are checkpoints of another run.
  void tell_of_others();

 private:
  std::string temporary(const std::string& name);  // ".<name>.tmp-<pid>-<count>"
  void clear_stale();
  void replace(const std::string& staging, const std::string& tag);

  std::string path_;
  // Held for the life of this object: no other job can be saving here, which clear_stale() relies on.
  std::unique_ptr<FolderLock> lock_;
  // Above the sequence of every checkpoint in the folder, of other runs too.
  int64_t next_sequence_ = 1;
  // Part of temporary names: unique within this process.
  uint64_t count_ = 0;
  std::set<std::string> others_;  // tags of complete checkpoints that this run neither wrote nor resumed from
  bool told_ = false;
};

}  // namespace gannet::checkpoint
