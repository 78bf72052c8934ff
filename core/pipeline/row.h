// A rank's row of a schedule under construction. Numbers the micro-batches of each part, separately
// for its forwards and its backwards (B or I).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "pipeline/schedule.h"

namespace gannet::pipeline {

class Row {
 public:
  /// Appends the next forward, input or whole backward pass of a part.
  void forward(uint32_t part) { add(Action::kForward, part, next_[part].forwards++); }
  void backward(uint32_t part) { add(Action::kBackward, part, next_[part].backwards++); }
  void input(uint32_t part) {
    const int64_t micro_batch = next_[part].backwards++;
    add(Action::kInput, part, micro_batch);
    waiting_.push_back({Action::kWeight, part, micro_batch});
  }
  /// Appends the weight pass that has waited longest, if any.
  void weight() {
    if (waiting_.empty()) return;
    actions_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  /// Appends the weight pass of a part that has waited longest, if any.
  void weight(uint32_t part) {
    for (auto one = waiting_.begin(); one != waiting_.end(); ++one)
      if (one->part == part) {
        actions_.push_back(*one);
        waiting_.erase(one);
        return;
      }
  }
  size_t waiting() const { return waiting_.size(); }
  int64_t forwards(uint32_t part) { return next_[part].forwards; }
  /// The actions of the first `count` micro-batches.
  std::vector<Action> below(int64_t count) const {
    std::vector<Action> kept;
    for (const Action& action : actions_)
      if (action.micro_batch < count) kept.push_back(action);
    return kept;
  }

 private:
  struct Next {
    int64_t forwards = 0, backwards = 0;
  };
  void add(Action::Kind kind, uint32_t part, int64_t micro_batch) { actions_.push_back({kind, part, micro_batch}); }

  std::vector<Action> actions_;
  std::deque<Action> waiting_;     // pending weight passes; their input passes have run
  std::map<uint32_t, Next> next_;  // by part
};

}  // namespace gannet::pipeline
