// The signals that the launcher takes while it runs, as a file descriptor to poll; the mask of before comes back at the end.
#pragma once

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace gannet::launch {

class Signals {
 public:
  Signals() {
    sigset_t taken;
    sigemptyset(&taken);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&taken, number);
    sigprocmask(SIG_BLOCK, &taken, &before_);
    descriptor_ = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Signals() {
    close(descriptor_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;

  int descriptor() const { return descriptor_; }
  bool next(signalfd_siginfo& info) { return read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info); }

 private:
  sigset_t before_;
  int descriptor_;
};

}  // namespace gannet::launch
