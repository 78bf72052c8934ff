/// Starts threads that receive no signals, so that signals go to the program's own threads. For
/// plugins and the core.
///
///   const gannet::sdk::BlockSignals blocked;
///   worker_ = std::thread(...);                      // the mask is also restored if this throws
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <exception>
#include <thread>

namespace gannet::sdk {

/// Threads inherit the signal mask of their creator, so threads created while this object exists
/// never run the program's handlers. Signals that are raised by a fault in the thread itself are
/// not blocked.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~BlockSignals() { restore(); }
  BlockSignals(const BlockSignals&) = delete;
  void restore() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

/// While it exists, a write of this thread to a closed connection returns EPIPE and raises no SIGPIPE, which would end the
/// program. For calls of libraries that write without MSG_NOSIGNAL on the program's threads; the program's handlers stay.
class BlockPipeSignal {
 public:
  BlockPipeSignal() {
    sigset_t pending;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
  }
  ~BlockPipeSignal() {
    // The signal that a write has raised is taken here: it would end the program as soon as it is unblocked.
    const timespec now{};
    if (!was_pending_)
      while (sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
      }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockPipeSignal(const BlockPipeSignal&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

/// Runs `body` on a thread that receives no signals; threads that it starts receive none either.
/// The caller waits, and still receives signals. Rethrows what `body` throws.
template <class Body>
void without_signals(Body&& body) {
  BlockSignals blocked;
  std::exception_ptr thrown;
  std::thread service([&] {
    try {
      body();
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  blocked.restore();
  service.join();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace gannet::sdk
