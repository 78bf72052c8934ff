/// Starts threads that receive no signals, so that signals go to the program's own threads. For
/// plugins and the core.
///
///   const gannet::sdk::BlockSignals blocked;
///   worker_ = std::thread(...);                      // the mask is also restored if this throws
#pragma once

#include <pthread.h>
#include <signal.h>

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
