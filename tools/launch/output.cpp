#include "launch/output.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/format.h"

namespace gannet::launch {
namespace {

// Writes up to this size are made directly: a terminal, or a pipe that poll() reports as writable,
// accepts them without blocking. It is below PIPE_BUF, 4096.
constexpr size_t kSmall = 256;
constexpr size_t kPart = 64 * 1024;

}  // namespace

Output::Output(Way way) : way_(way) {
  open(sinks_[0], 1);
  if (is_framed()) {
    sinks_[1].is_the_first = true;
    sinks_[0].queue = kGreeting;
    return;
  }
  open(sinks_[1], 2);
  const Sink &out = sinks_[0], &error = sinks_[1];
  sinks_[1].is_the_first = out.way != WritingWay::kNone && out.way != WritingWay::kPlain && out.way == error.way &&
                           out.device == error.device && out.inode == error.inode;
}

Output::~Output() {
  for (Sink& sink : sinks_)
    if (sink.is_ours) close(sink.descriptor);
}

void Output::open(Sink& sink, int descriptor) {
  struct stat status{};
  if (fstat(descriptor, &status) != 0) return;  // closed from the start: `>&-`
  sink.descriptor = descriptor;
  sink.device = status.st_dev;
  sink.inode = status.st_ino;
  sink.is_pipe = S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
  sink.way = S_ISSOCK(status.st_mode)                              ? WritingWay::kSocket
             : S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode) ? WritingWay::kPolled
                                                                   : WritingWay::kPlain;
  if (sink.way != WritingWay::kPolled) return;
  // Open the file again: O_NONBLOCK on the given descriptor would also affect the shell.
  const std::string name = formatted("/proc/self/fd/{}", descriptor);
  const int own = ::open(name.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (own < 0) return;
  sink.descriptor = own;
  sink.is_ours = true;
  sink.way = WritingWay::kNonBlocking;
}

void Output::write(int descriptor, std::string_view text) {
  Sink& to = sink(descriptor);
  if (to.way == WritingWay::kNone || to.is_closed) return;
  if (drops_ && pending(to) >= kMost) {
    dropped_ += text.size();
    return;
  }
  if (is_framed() && !text.empty())
    to.queue.append(framed(descriptor == 1 ? FrameKind::kOut : FrameKind::kError, text));
  else
    to.queue.append(text);
}

void Output::frame(FrameKind kind, std::string_view body) {
  if (sinks_[0].way == WritingWay::kNone || sinks_[0].is_closed) return;
  sinks_[0].queue.append(framed(kind, body));
  flush();
}

void Output::say(const std::string& text) {
  if (is_framed()) return frame(FrameKind::kSay, text);
  Sink& to = sink(2);
  if (to.way == WritingWay::kNone || to.is_closed) return;
  to.queue += formatted("[gannet run] {}\n", text);
  flush();
}

void Output::flush() {
  flush(sinks_[0]);
  if (!sinks_[1].is_the_first) flush(sinks_[1]);
}

size_t Output::pending(const Sink& sink) const {
  const bool is_file = files_ && sink.way == WritingWay::kPlain && !sink.is_the_first;
  return sink.pending() + (is_file ? files_->pending(sink.descriptor) : 0);
}

void Output::write_file(Sink& sink) {
  if (sink.pending() > 0) {
    if (!files_) files_ = std::make_unique<FileWriter>();
    files_->write(sink.descriptor, sink.queue.substr(sink.done));
    sink.queue.clear();
    sink.done = 0;
  }
  if (!files_) return;
  files_->take_event();
  dropped_ += files_->take_dropped();
  if (const int reason = files_->failure(sink.descriptor)) note_failure(sink, reason);
}

void Output::note_failure(Sink& sink, int reason) {
  const bool is_new = !sink.has_failed && !sink.is_closed;
  sink.has_failed = true;
  if (is_new && &sink == &sinks_[0] && !sinks_[1].is_the_first)
    say(std::string("stdout cannot be written: ") + std::strerror(reason));
}

void Output::flush(Sink& sink) {
  if (sink.way == WritingWay::kNone || sink.is_closed) return;
  if (sink.way == WritingWay::kPlain) return write_file(sink);
  const auto may_write = [&] {
    pollfd ready{sink.descriptor, POLLOUT, 0};
    if (poll(&ready, 1, 0) < 0) return false;
    if (sink.is_pipe && (ready.revents & (POLLERR | POLLHUP | POLLNVAL))) sink.is_closed = true;
    return !sink.is_closed && (ready.revents & POLLOUT) != 0;
  };
  if (!may_write()) sink.done = sink.is_closed ? sink.queue.size() : sink.done;
  while (sink.pending() > 0 && (sink.way != WritingWay::kPolled || may_write())) {
    const size_t size = std::min(sink.pending(), sink.way == WritingWay::kPolled ? kSmall : kPart);
    const char* text = sink.queue.data() + sink.done;
    const ssize_t count = sink.way == WritingWay::kSocket ? send(sink.descriptor, text, size, MSG_DONTWAIT | MSG_NOSIGNAL)
                                                          : ::write(sink.descriptor, text, size);
    if (count >= 0) {
      sink.done += static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      const int reason = errno;
      if (sink.is_pipe) sink.is_closed = true;
      dropped_ += sink.is_closed ? 0 : sink.pending();
      sink.done = sink.queue.size();
      note_failure(sink, reason);
    }
  }
  if (sink.done == sink.queue.size() || sink.done > kMost) {
    sink.queue.erase(0, sink.done);
    sink.done = 0;
  }
}

void Output::add_to(std::vector<pollfd>& waiting) const {
  if (files_) waiting.push_back({files_->event(), POLLIN, 0});
  for (const Sink& sink : sinks_) {
    if (sink.way == WritingWay::kNone || sink.way == WritingWay::kPlain || sink.is_closed || sink.is_the_first) continue;
    // Even without an event, poll reports that a pipe's reader has ended; for a terminal it would
    // do so repeatedly.
    if (sink.pending() > 0 || sink.is_pipe)
      waiting.push_back({sink.descriptor, static_cast<short>(sink.pending() > 0 ? POLLOUT : 0), 0});
  }
}

bool Output::lost_its_reader() const { return sinks_[0].is_closed || sinks_[1].is_closed; }

uint64_t Output::take_dropped() {
  const uint64_t count = dropped_;
  dropped_ = 0;
  return count;
}

}  // namespace gannet::launch
