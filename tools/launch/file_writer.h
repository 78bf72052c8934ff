// Writes to regular files in order, on a separate thread: a stalled file system must not keep the
// launcher from its signals, or a head from its heartbeats.
//
//   FileWriter writer;
//   writer.write(1, "[0] loss 2.3\n");       // returns at once
//   poll() on writer.event(); writer.take_event();      // something was written
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace gannet::launch {

class FileWriter {
 public:
  FileWriter();
  // Waits up to 3 s for what is pending; the rest is lost, since a stalled write cannot be interrupted.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;

  void write(int descriptor, std::string text);  // 1 or 2
  size_t pending(int descriptor) const;          // bytes
  // The errno of the first failed write, 0: none. After it, nothing more is written to this descriptor.
  int failure(int descriptor) const;
  size_t take_dropped();  // bytes that could not be written, since the last call

  int event() const { return event_; }
  void take_event() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may be stalled when this ends
  int event_;
};

}  // namespace gannet::launch
