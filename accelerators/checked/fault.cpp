// A signal handler for host accesses to device memory.
#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "memory.h"

namespace gannet::accelerators::checked {
namespace {

struct sigaction before;

// The process ends in this handler, so calls that are not async-signal-safe (locks, allocation)
// do no further harm. If the fault occurred while Memory's lock was held, alarm() ends the
// process.
void on_fault(int number, siginfo_t* info, void* context) {
  if (Memory::get().is_device(info->si_addr)) {
    alarm(10);
    const auto at = reinterpret_cast<uint64_t>(info->si_addr);
    const Memory::BlockDescription block = Memory::get().describe(at);
    char text[512];
    const int length = snprintf(text, sizeof(text),
                                "checked device: the host uses device memory: address %p, byte %llu of %s; copy it to the host "
                                "first. The access came from:\n",
                                info->si_addr, static_cast<unsigned long long>(at - block.begin), block.text.c_str());
    static_cast<void>(!write(STDERR_FILENO, text, static_cast<size_t>(std::min<int>(length, sizeof(text) - 1))));
    void* frames[64];
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    std::abort();
  }
  if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(number, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(number);
  sigaction(number, &before, nullptr);  // the access is repeated, and the previous action handles the fault
}

}  // namespace

void catch_host_accesses() {
  void* frame;
  backtrace(&frame, 1);  // loads the libraries that the handler needs
  struct sigaction action{};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &before);
}

}  // namespace gannet::accelerators::checked
