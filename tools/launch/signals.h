// The signals that gannet run handles, as file descriptors to poll; the previous mask is restored
// at the end.
//
// The launcher receives a signal twice if it is sent to the entire job: directly, and through the
// front process (launch/guard.h). An agent also receives it from its head. Per signal number, it
// keeps a count per source, and acts when the largest count grows. A stop may also come as several
// signals (`timeout` signals its child and the group, a closing terminal sends SIGHUP twice, systemd
// SIGTERM and SIGHUP): within kOneStop of a stop, further ones are part of it, and SIGHUP always is.
#pragma once

#include <poll.h>
#include <signal.h>

#include <chrono>
#include <map>
#include <optional>
#include <vector>

namespace gannet::launch {

struct Signal {
  int number = 0;
  bool is_from_terminal = false;  // Ctrl-C: every process of the foreground group receives it
  // Why a stop is implied by something other than a signal. It never counts as a second stop.
  enum ImpliedStop { kNo, kReaderEnded, kHeadLost } implied = kNo;
};

class Signals {
 public:
  // `channel`: the descriptor from which to read the signals that the front process relays; -1:
  // none.
  explicit Signals(int channel = -1);
  ~Signals();
  Signals(const Signals&) = delete;

  // Returns the next signal to act on; false if there is none now. SIGCHLD and SIGPIPE only wake
  // poll().
  bool next(Signal& signal);
  // Whether to act on a signal that the head of an agent forwards.
  bool takes_from_head(int number) { return counts(from_head_, number); }
  void add_to(std::vector<pollfd>& waiting) const;
  // The front process was killed with -9: no process waits for this launch.
  bool is_abandoned() const { return is_abandoned_; }

  static bool is_stop(int number) { return number == SIGINT || number == SIGTERM || number == SIGHUP; }

 private:
  static constexpr std::chrono::milliseconds kOneStop{500};
  bool counts(std::map<int, int>& heard, int number);
  sigset_t before_;
  int descriptor_, channel_;
  bool is_abandoned_ = false;
  std::map<int, int> own_, relayed_, from_head_, acted_on_;
  std::optional<std::chrono::steady_clock::time_point> stopped_;
};

}  // namespace gannet::launch
