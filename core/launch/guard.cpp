#include "launch/guard.h"

#include <fcntl.h>
#include <gannet/error.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launch/marked.h"

namespace gannet::launch {
namespace {

struct Message {
  char what;  // '+' entrust, '-' take back
  pid_t target;
};

constexpr int kMost = 4096;

// Passes, because what is killed may just have started something.
void kill_marked(const std::string& mark) {
  for (int pass = 0; pass < 100; ++pass) {
    const auto pids = marked_processes(mark);
    if (pids.empty()) return;
    for (const pid_t pid : pids) kill(pid, SIGKILL);
    usleep(10'000);
  }
}

// The guard's whole life.
[[noreturn]] void watch(int channel, const std::string& mark) {
  static pid_t targets[kMost];
  int count = 0;
  Message message{};
  for (;;) {
    const ssize_t got = read(channel, &message, sizeof message);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof message)) break;
    if (message.what == '+' && count < kMost) targets[count++] = message.target;
    if (message.what == '-')
      for (int i = 0; i < count; ++i)
        if (targets[i] == message.target) targets[i--] = targets[--count];
  }
  for (int i = 0; i < count; ++i) kill(targets[i], SIGKILL);
  kill_marked(mark);
  _exit(0);
}

}  // namespace

Guard::Guard(const std::string& mark) {
  int ends[2];
  // Keeps messages whole, and reads as ended when the launcher, the only one to hold the other end, is gone.
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(ErrorCode::kIo, std::string("cannot make a socket: ") + std::strerror(errno));
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);  // what is sent to the launcher's group is not for it
    close(ends[1]);
    const int nowhere = open("/dev/null", O_RDWR);
    for (const int stream : {0, 1, 2}) dup2(nowhere, stream);  // it must not keep the launcher's pipes open
    watch(ends[0], mark);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  close(ends[0]);
  channel_ = ends[1];
  if (pid_ < 0) {
    close(channel_);
    throw Error(ErrorCode::kIo, std::string("cannot start a process: ") + std::strerror(errno));
  }
}

Guard::~Guard() {
  close(channel_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::entrust(pid_t target) { tell('+', target); }
void Guard::take_back(pid_t target) { tell('-', target); }

void Guard::tell(char what, pid_t target) {
  const Message message{what, target};
  while (send(channel_, &message, sizeof message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

}  // namespace gannet::launch
