#include "engine/calls.h"

#include <gannet/error.h>
#include <torch/csrc/autograd/engine.h>

#include "base/format.h"
#include "base/thread_number.h"

namespace gannet {

void Calls::enter(const char* call) {
  const uint64_t mine = thread_number();
  uint64_t inside = 0;
  if (thread_.compare_exchange_strong(inside, mine)) {
    call_ = call;
    depth_ = 1;
    return;
  }
  if (inside == mine) {
    ++depth_;
    return;
  }
  if (torch::autograd::get_current_graph_task_id() >= 0) return;  // in a node of a backward that was admitted
  const char* const other = call_;
  throw Error(ErrorCode::kOrder,
              formatted("{}() was called while another thread is in {}() of this engine", call, other ? other : "a call"),
              "use an engine from one thread at a time: wait for the other call, or hold a mutex around both");
}

void Calls::leave() noexcept {
  if (thread_ != thread_number() || --depth_ > 0) return;
  call_ = nullptr;
  thread_ = 0;
}

}  // namespace gannet
