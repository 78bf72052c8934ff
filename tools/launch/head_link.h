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
  // How long each side may be silent before the other one gives it up, and how often it says that it is there.
  static constexpr std::chrono::seconds kSilence{12}, kBeat{2};

  // Before poll(): beats, adds stdin, and returns a wait that is short enough for the next beat.
  std::chrono::milliseconds prepare_to_wait(Output& output, std::vector<pollfd>& waiting, std::chrono::milliseconds time);
  // After poll(): takes what has come. The end of the connection, or silence, counts as SIGTERM.
  void take();

  bool next(Signal& signal);          // that the head forwards
  bool take_failure();                // whether ranks of another host have failed since the last call
  std::optional<Frame> next_frame();  // kPlan and kGo
  bool is_lost() const { return is_lost_; }

 private:
  using Clock = std::chrono::steady_clock;
  void lose();
  FrameReader reader_;
  std::deque<Signal> signals_;
  std::deque<Frame> frames_;
  bool has_failed_ = false, is_lost_ = false;
  Clock::time_point heard_ = Clock::now(), beaten_ = Clock::now();
};

}  // namespace gannet::launch
