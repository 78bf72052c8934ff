// A call of the public API in progress in this process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "control/watch.h"

namespace gannet::control {

inline int64_t in_ms(Instant time) { return std::chrono::duration_cast<milliseconds>(time.time_since_epoch()).count(); }

struct Watch::ActiveCall {
  CallSite call;
  bool with_rank_zero = false;
  bool granted = false;  // all members are in this call
  Instant entered{};
  std::atomic<int64_t> waiting_since{0};  // the steady clock's time in ms; 0: not waiting
  bool told = false;                      // rank 0 knows of the wait
  int reports = 0;                        // report intervals passed while rank 0 does not answer
};

}  // namespace gannet::control
