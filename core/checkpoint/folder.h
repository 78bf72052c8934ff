// Manages a keeper's folder: stages, commits and removes checkpoints. A job killed after any step
// leaves every complete checkpoint intact.
#pragma once

#include <set>
#include <string>

#include "checkpoint/lock.h"
#include "checkpoint/manifest.h"

namespace gannet::checkpoint {

class Folder {
 public:
  // Creates and locks the folder, and removes leftovers of dead jobs.
  explicit Folder(std::string path);

  // Creates and returns the folder to write into. Throws Error(kArgument) if <tag> exists and is not a
  // checkpoint, Error(kIo) if `bytes` do not fit.
  std::string stage(const std::string& tag, uint64_t bytes);
  void discard(const std::string& staging) noexcept;

  // Turns the staged files and `manifest` into <tag>. The manifest's sequence must be at least
  // next_sequence().
  void commit(const std::string& staging, const Manifest& manifest);
  int64_t next_sequence() const { return next_sequence_; }
  void set_latest(const std::string& tag);
  // Removes complete checkpoints except the newest `keep`, `tag`, the one in `latest`, and those of
  // other runs.
  void retain(int64_t keep, const std::string& tag);
  // Declares that the checkpoints that were in the folder when it was locked belong to this run.
  void adopt() { others_.clear(); }
  // Warns once, before the first save, if there are checkpoints of another run.
  void tell_of_others();

 private:
  std::string temporary(const std::string& name);  // ".<name>.tmp-<pid>-<count>"
  void clear_stale();
  void replace(const std::string& staging, const std::string& tag);

  std::string path_;
  // Held for this object's lifetime, so that no other job saves here; clear_stale() relies on that.
  std::unique_ptr<FolderLock> lock_;
  // Greater than the sequence of every checkpoint in the folder, including those of other runs.
  int64_t next_sequence_ = 1;
  // Part of temporary names, to make them unique in this process.
  uint64_t count_ = 0;
  std::set<std::string> others_;  // tags of complete checkpoints that this run neither wrote nor resumed from
  bool told_ = false;
};

}  // namespace gannet::checkpoint
