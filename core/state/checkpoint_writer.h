// State kept between saves: the locked folders, the snapshot for a background write, and the thread
// that writes it.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace gannet {

// The canonical name of a folder.
std::string real_path(const std::string& folder);

class CheckpointWriter {
 public:
  explicit CheckpointWriter(checkpoint::Ranks ranks) : ranks_(std::move(ranks)) {}
  ~CheckpointWriter();  // waits for the write; logs an error that no wait() has thrown
  CheckpointWriter(const CheckpointWriter&) = delete;

  const checkpoint::Ranks& ranks() const { return ranks_; }
  // The folder is locked from the first save until this object is destroyed. The call is collective
  // for a new folder.
  checkpoint::Saver& saver(const std::string& folder);

  // Copies the slices' elements into this object's memory, and points the slices at it. Later
  // snapshots reuse the memory.
  void snapshot(std::vector<checkpoint::Slice>& slices);
  void start(std::function<void()> write);  // runs `write` on a thread with signals blocked, except faults
  void wait();                              // waits for `write` to end; throws its exception once

 private:
  checkpoint::Ranks ranks_;
  std::map<std::string, std::unique_ptr<checkpoint::Saver>> savers_;
  std::vector<at::Tensor> copies_;
  std::thread thread_;
  std::exception_ptr failure_;
};

}  // namespace gannet
