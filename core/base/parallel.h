// The host's parallel loop: the one behind gannet_host::parallel_for and behind the core's own passes over memory.
// Called from the engine's thread only. Bodies in C return codes; what a body in C++ throws ends the loop with that exception.
#pragma once

#include <gannet/abi.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <type_traits>

namespace gannet {

// Returns the first code that is not GANNET_OK; the other parts of the loop run all the same. Parts begin at multiples of
// `grain` from `begin`.
int32_t parallel_for(uint64_t begin, uint64_t end, uint64_t grain, gannet_loop_body body, void* argument);
uint32_t parallel_thread_count();

// body(begin, end). What it throws leaves the loop as it was thrown, once every part is over; of several, the first in time.
template <class Body>
void parallel_for(uint64_t begin, uint64_t end, uint64_t grain, Body&& body) {
  struct Loop {
    std::remove_reference_t<Body>* body;
    std::atomic<bool> has_failed{false};
    std::exception_ptr thrown;  // of the one part that set has_failed; read behind the loop's end
  } loop{&body, {}, {}};
  parallel_for(
      begin, end, grain,
      [](void* argument, uint64_t first, uint64_t last) -> int32_t {
        auto& shared = *static_cast<Loop*>(argument);
        try {
          (*shared.body)(first, last);
          return GANNET_OK;
        } catch (...) {  // an exception must not leave a thread of the pool
          if (!shared.has_failed.exchange(true)) shared.thrown = std::current_exception();
          return GANNET_INTERNAL;
        }
      },
      &loop);
  if (loop.thrown) std::rethrow_exception(loop.thrown);
}

}  // namespace gannet
