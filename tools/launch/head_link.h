// An agent's end of its connection to the `gannet run` that started it (launch/agent.h): frames on stdin.
#pragma once

#include <poll.h>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "launch/frames.h"
#include "launch/output.h"
#include "launch/signals.h"

namespace gannet::launch {

class HeadLink {
 public:
  // How long each side may be silent before the other drops the connection, and how often it sends a heartbeat.
  static constexpr std::chrono::seconds kSilence{12}, kBeat{2};

  // Before poll(): sends a due heartbeat, adds stdin, and caps the wait at the heartbeat interval.
  std::chrono::milliseconds prepare_to_wait(Output& output, std::vector<pollfd>& waiting, std::chrono::milliseconds time);
  // After poll(): reads frames. A closed or silent connection counts as a request to stop.
  void take();

  bool next(Signal& signal);          // a signal forwarded by the head, or an implied stop
  bool take_failure();                // whether ranks of another host have failed since the last call
  std::optional<Frame> next_frame();  // kPlan and kGo
  bool is_lost() const { return is_lost_; }

 private:
  using Clock = std::chrono::steady_clock;
  void lose(const std::string& why);
  FrameReader reader_;
  std::deque<Signal> signals_;
  std::deque<Frame> frames_;
  bool has_failed_ = false, is_lost_ = false;
  Clock::time_point heard_ = Clock::now(), beaten_ = Clock::now();
};

}  // namespace gannet::launch
