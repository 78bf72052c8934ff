#include "launch/signals.h"

#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace gannet::launch {

Signals::Signals(int channel) : channel_(channel) {
  sigset_t taken;
  sigemptyset(&taken);
  // SIGPIPE: if the reader has ended, write() returns an error instead. SIGTTOU: a launcher in a
  // terminal's background may still write.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE, SIGTTOU}) sigaddset(&taken, number);
  // nohup: an ignored SIGHUP stays ignored. (If it were blocked, it would be queued all the same.)
  struct sigaction hangup{};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN) sigdelset(&taken, SIGHUP);
  sigprocmask(SIG_BLOCK, &taken, &before_);
  descriptor_ = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
}

Signals::~Signals() {
  close(descriptor_);
  sigset_t ours;
  sigemptyset(&ours);
  for (const int number : {SIGPIPE, SIGTTOU})
    if (!sigismember(&before_, number)) sigaddset(&ours, number);
  const timespec now{0, 0};
  while (sigtimedwait(&ours, nullptr, &now) > 0) {  // caused by our own writes, not meant for the caller
  }
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

bool Signals::counts(std::map<int, int>& heard, int number) {
  if (number == SIGCHLD || number == SIGPIPE || number == SIGTTOU) return false;
  const auto now = std::chrono::steady_clock::now();
  if (is_stop(number) && stopped_ && (number == SIGHUP || now - *stopped_ < kOneStop)) {
    heard[number] = acted_on_[number];
    return false;
  }
  if (++heard[number] <= acted_on_[number]) return false;
  acted_on_[number] = heard[number];
  if (is_stop(number)) stopped_ = now;
  return true;
}

bool Signals::next(Signal& signal) {
  signalfd_siginfo info{};
  while (read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    signal = {.number = static_cast<int>(info.ssi_signo), .is_from_terminal = info.ssi_code == SI_KERNEL};
    if (counts(own_, signal.number)) return true;
  }
  while (channel_ >= 0 && !is_abandoned_) {
    const ssize_t got = recv(channel_, &signal, sizeof signal, MSG_DONTWAIT);
    if (got == static_cast<ssize_t>(sizeof signal)) {
      if (counts(relayed_, signal.number)) return true;
    } else if (got == 0) {
      is_abandoned_ = true;
    } else if (errno != EINTR) {
      break;
    }
  }
  return false;
}

void Signals::add_to(std::vector<pollfd>& waiting) const {
  waiting.push_back({descriptor_, POLLIN, 0});
  if (channel_ >= 0) waiting.push_back({channel_, POLLIN, 0});
}

}  // namespace gannet::launch
