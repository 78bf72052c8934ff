// What saving keeps between calls: the folders that are locked, the copy that a write in the background reads, its thread.
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

// A folder by one name, however it was written.
std::string real_path(const std::string& folder);

class CheckpointWriter {
 public:
  explicit CheckpointWriter(checkpoint::Ranks ranks) : ranks_(std::move(ranks)) {}
  ~CheckpointWriter();  // waits; an error that nobody asked for is logged
  CheckpointWriter(const CheckpointWriter&) = delete;

  const checkpoint::Ranks& ranks() const { return ranks_; }
  // Locked from the first save into it until this object goes. Collective where it is new.
  checkpoint::Saver& saver(const std::string& folder);

  // Copies the slices' elements into memory of this object's and points the slices there. The memory is kept for the next time.
  void snapshot(std::vector<checkpoint::Slice>& slices);
  void start(std::function<void()> write);  // on a thread that takes no signals
  void wait();                              // throws what `write` threw, once

 private:
  checkpoint::Ranks ranks_;
  std::map<std::string, std::unique_ptr<checkpoint::Saver>> savers_;
  std::vector<at::Tensor> copies_;
  std::thread thread_;
  std::exception_ptr failure_;
};

}  // namespace gannet
