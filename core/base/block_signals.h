// A thread inherits the signal mask of its creator. While this lives, threads that are made take no signals, so that a program's
// handlers run on its own threads only. Signals that a fault of the thread itself raises stay as they are.
//
//   const BlockSignals blocked;
//   worker_ = std::thread(...);          // where it throws, the mask is restored as well
#pragma once

#include <pthread.h>
#include <signal.h>

namespace gannet {

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

}  // namespace gannet
