#include "engine/timers.h"

#include <cstdio>

namespace gannet {

std::string Timers::take_line() {
  char line[160];
  std::snprintf(line, sizeof(line), "time (ms) | fwd: %.2f | bwd: %.2f | bwd_allreduce: %.2f | step: %.2f", forward_ms, backward_ms,
                reduce_ms, step_ms);
  forward_ms = backward_ms = reduce_ms = step_ms = 0;
  return line;
}

}  // namespace gannet
