/// Threads of a library: they take no signals, which are the program's. For plugins, and the core itself.
///
///   const gannet::sdk::BlockSignals blocked;
///   worker_ = std::thread(...);                      // where it throws, the mask is restored as well
#pragma once

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <thread>

namespace gannet::sdk {

/// A thread inherits the signal mask of its creator: those that are made while this lives never run the program's handlers.
/// Signals that a fault of the thread itself raises stay as they are.
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

/// Runs `body` on a thread that takes no signals, as do the threads that it starts, while the caller waits and still takes them.
/// Throws what the body throws.
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
