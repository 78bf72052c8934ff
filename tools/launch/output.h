// gannet run's own stdout and stderr, written without ever waiting for their reader.
//
//   Output output;
//   output.write(1, "[0] loss 2.3\n");      // queued
//   output.flush();                          // writes what the reader accepts now
//   if (!output.has_room(1)) ...             // leave it in the rank's pipe: the rank waits, the launcher does not
//
// Regular files are written by a thread (launch/file_writer.h). A stalled reader (Ctrl-S, `less`, a
// blocked log collector) fills the queue; then ranks wait, as they would on their own pipe. While
// ranks are being stopped they must not wait: drop_when_full() then drops output, which is counted
// and reported. A reader's end is detected even while nothing is written.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launch/file_writer.h"
#include "launch/frames.h"

namespace gannet::launch {

class Output {
 public:
  enum class Way { kPlain, kFramed };  // kFramed: as launch/frames.h, both streams through stdout
  explicit Output(Way way = Way::kPlain);
  ~Output();
  Output(const Output&) = delete;

  void write(int descriptor, std::string_view text);  // 1 or 2
  void say(const std::string& text);                  // its own line on stderr, queued even if full
  void frame(FrameKind kind, std::string_view body);
  bool is_framed() const { return way_ == Way::kFramed; }
  bool has_room(int descriptor) const { return pending(sink(descriptor)) < kMost; }
  void drop_when_full(bool on) { drops_ = on; }

  void flush();
  size_t pending() const { return pending(sinks_[0]) + pending(sinks_[1]); }  // unwritten bytes
  void add_to(std::vector<pollfd>& waiting) const;                            // adds the descriptors that poll() must wait for

  bool is_pipe(int descriptor) const { return sink(descriptor).is_pipe; }  // a pipe or a socket: something with a reader
  bool are_one() const { return sinks_[1].is_the_first && !is_framed(); }  // one file for both (`2>&1`): the order is kept
  bool lost_its_reader() const;                                            // the reader of a pipe or socket has ended
  bool has_failed() const { return sinks_[0].has_failed || sinks_[1].has_failed; }  // a full disk
  uint64_t take_dropped();  // the bytes that were dropped since the last call

 private:
  static constexpr size_t kMost = 1 << 20;
  enum class WritingWay { kPlain, kNonBlocking, kSocket, kPolled, kNone };
  struct Sink {
    int descriptor = -1;
    bool is_ours = false, is_pipe = false, is_closed = false, is_the_first = false, has_failed = false;
    WritingWay way = WritingWay::kNone;
    dev_t device = 0;
    ino_t inode = 0;
    std::string queue;
    size_t done = 0;  // bytes of the queue already written
    size_t pending() const { return queue.size() - done; }
  };
  const Sink& sink(int descriptor) const { return sinks_[descriptor == 2 && !sinks_[1].is_the_first ? 1 : 0]; }
  Sink& sink(int descriptor) { return const_cast<Sink&>(static_cast<const Output&>(*this).sink(descriptor)); }
  static void open(Sink& sink, int descriptor);
  size_t pending(const Sink& sink) const;
  void flush(Sink& sink);
  void write_file(Sink& sink);
  void note_failure(Sink& sink, int reason);

  Way way_;
  Sink sinks_[2];
  std::unique_ptr<FileWriter> files_;  // created when text is first written to a regular file
  bool drops_ = false;
  uint64_t dropped_ = 0;
};

}  // namespace gannet::launch
