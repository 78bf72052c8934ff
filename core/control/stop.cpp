#include <gannet/engine.h>
#include <gannet/error.h>
#include <gannet/stop.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/format.h"
#include "control/world.h"

namespace gannet {
namespace {

std::atomic<bool> exists{false};
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free, "the handler may only touch what needs no lock");

extern "C" void gannet_note_stop(int number) { received.store(number, std::memory_order_relaxed); }

}  // namespace

struct StopSignals::Former {
  int number;
  struct sigaction action;
};

StopSignals::StopSignals() : StopSignals({SIGTERM, SIGUSR1}) {}

StopSignals::StopSignals(std::initializer_list<int> signals) {
  if (exists.exchange(true))
    throw Error(ErrorCode::kOrder, "there is a StopSignals already: a process has one set of signal handlers",
                "make one, early in main, and pass it on");
  received.store(0);
  try {
    install(signals);
  } catch (...) {
    restore();
    throw;
  }
}

StopSignals::~StopSignals() { restore(); }

void StopSignals::install(const std::vector<int>& signals) {
  if (signals.empty()) throw Error(ErrorCode::kArgument, "StopSignals was given no signal", "StopSignals({SIGTERM, SIGUSR1})");
  struct sigaction ours{};
  ours.sa_handler = gannet_note_stop;
  ours.sa_flags = SA_RESTART;  // the program's reads and writes are restarted
  sigemptyset(&ours.sa_mask);
  former_.reserve(signals.size());
  for (const int number : signals) {
    Former former{number, {}};
    if (sigaction(number, &ours, &former.action) != 0)
      throw Error(ErrorCode::kArgument, formatted("StopSignals cannot handle signal {}: {}", number, std::strerror(errno)),
                  "SIGKILL and SIGSTOP are the kernel's own; take SIGTERM, SIGUSR1, SIGUSR2, SIGINT or SIGHUP");
    former_.push_back(former);
  }
}

void StopSignals::restore() noexcept {
  // Restores the handlers in reverse order, so that a signal that was listed twice gets its
  // original handler back.
  for (auto former = former_.rbegin(); former != former_.rend(); ++former) {
    struct sigaction now{};
    const bool still_ours = sigaction(former->number, nullptr, &now) == 0 && now.sa_handler == gannet_note_stop;
    if (still_ours) sigaction(former->number, &former->action, nullptr);
  }
  former_.clear();
  exists.store(false);
}

int StopSignals::signal() const noexcept { return received.load(std::memory_order_relaxed); }

bool StopSignals::requested_on_any(EngineBase& engine) const { return requested_on_any(*engine.process_group()); }

bool StopSignals::requested_on_any(ProcessGroup& group) const {
  const auto call = group.world()->enter(group.links().host, "requested_on_any");  // so that a rank that never arrives is named
  double asked = requested() ? 1.0 : 0.0;
  group.links().host.all_reduce(&asked, 1);
  return asked > 0;
}

}  // namespace gannet
