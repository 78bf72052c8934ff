// The signals that gannet run handles, as file descriptors to poll; the previous mask is restored
// at the end.
//
// The launcher receives a signal twice if it is sent to a whole job: directly, and through the
// process in front of it (launch/guard.h). For each signal number it counts both, and acts when the
// larger of the two counts grows.
#pragma once

#include <poll.h>
#include <signal.h>

#include <map>
#include <vector>

namespace gannet::launch {

struct Signal {
  int number = 0;
  bool is_from_terminal = false;  // Ctrl-C: every process of the foreground group receives it
};

class Signals {
 public:
  // `channel`: the descriptor from which to read the signals that the front process relays; -1:
  // none.
  explicit Signals(int channel = -1);
  ~Signals();
  Signals(const Signals&) = delete;

  // Returns the next signal to act on; false if there is none now. SIGCHLD and SIGPIPE only wake
  // poll() up.
  bool next(Signal& signal);
  void add_to(std::vector<pollfd>& waiting) const;
  // The front process was killed with -9: no process waits for this launch.
  bool is_abandoned() const { return is_abandoned_; }

  static bool is_stop(int number) { return number == SIGINT || number == SIGTERM || number == SIGHUP; }

 private:
  bool counts(std::map<int, int>& heard, int number);
  sigset_t before_;
  int descriptor_, channel_;
  bool is_abandoned_ = false;
  std::map<int, int> own_, relayed_, acted_on_;
};

}  // namespace gannet::launch
