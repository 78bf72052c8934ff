#include "launch/file_writer.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace gannet::launch {

struct FileWriter::State {
  explicit State(int event) : event(event) {}
  ~State() { close(event); }

  std::mutex mutex;
  std::condition_variable changed, written;
  std::deque<std::pair<int, std::string>> texts;
  size_t pending[3] = {0, 0, 0};  // by descriptor
  int failure[3] = {0, 0, 0};
  size_t dropped = 0;
  bool is_over = false;
  const int event;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return is_over || !texts.empty(); });
      if (is_over) return;
      const auto [descriptor, text] = std::move(texts.front());
      texts.pop_front();
      lock.unlock();
      int reason = 0;
      size_t done = 0;
      while (done < text.size() && reason == 0) {
        const ssize_t count = ::write(descriptor, text.data() + done, text.size() - done);
        if (count >= 0)
          done += static_cast<size_t>(count);
        else if (errno != EINTR)
          reason = errno;
      }
      lock.lock();
      pending[descriptor] -= text.size();
      dropped += text.size() - done;
      if (reason != 0) failure[descriptor] = reason;
      written.notify_one();
      const uint64_t one = 1;
      if (::write(event, &one, sizeof one) < 0) {  // its counter is full: the event is already set
      }
    }
  }
};

// The launcher's signals are also blocked here: the thread inherits the mask.
FileWriter::FileWriter() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  state_ = std::make_shared<State>(event_);
  std::thread([state = state_] { state->run(); }).detach();
}

FileWriter::~FileWriter() {
  std::unique_lock lock(state_->mutex);
  state_->written.wait_for(lock, std::chrono::seconds(3), [&] { return state_->pending[1] + state_->pending[2] == 0; });
  state_->is_over = true;
  state_->changed.notify_one();
}

void FileWriter::write(int descriptor, std::string text) {
  const std::lock_guard lock(state_->mutex);
  if (state_->failure[descriptor] != 0) {
    state_->dropped += text.size();
    return;
  }
  state_->pending[descriptor] += text.size();
  state_->texts.emplace_back(descriptor, std::move(text));
  state_->changed.notify_one();
}

size_t FileWriter::pending(int descriptor) const {
  const std::lock_guard lock(state_->mutex);
  return state_->pending[descriptor];
}

int FileWriter::failure(int descriptor) const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure[descriptor];
}

size_t FileWriter::take_dropped() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->dropped, 0);
}

void FileWriter::take_event() const {
  uint64_t count = 0;
  if (read(event_, &count, sizeof count) < 0) {  // no event is set
  }
}

}  // namespace gannet::launch
