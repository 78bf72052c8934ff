// The host's parallel loop, used by gannet_host::parallel_for and by the core's own passes over
// memory. Call it only from the engine's thread. A C body returns a status code; an exception from
// a C++ body is rethrown after the loop.
#pragma once

#include <gannet/abi.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <type_traits>

namespace gannet {

// Returns the first code that is not GANNET_OK; the other parts of the loop still run. Parts begin
// at multiples of `grain` from `begin`.
int32_t parallel_for(uint64_t begin, uint64_t end, uint64_t grain, gannet_loop_body body, void* argument);
uint32_t parallel_thread_count();

// Calls body(begin, end) for each part of the range. After all parts have ended, rethrows the first
// exception that a part threw.
template <class Body>
void parallel_for(uint64_t begin, uint64_t end, uint64_t grain, Body&& body) {
  struct Loop {
    std::remove_reference_t<Body>* body;
    std::atomic<bool> has_failed{false};
    std::exception_ptr thrown;  // set by the part that set has_failed; read after the loop
  } loop{&body, {}, {}};
  parallel_for(
      begin, end, grain,
      [](void* argument, uint64_t first, uint64_t last) -> int32_t {
        auto& shared = *static_cast<Loop*>(argument);
        try {
          (*shared.body)(first, last);
          return GANNET_OK;
        } catch (...) {  // an exception must not escape from a pool thread
          if (!shared.has_failed.exchange(true)) shared.thrown = std::current_exception();
          return GANNET_INTERNAL;
        }
      },
      &loop);
  if (loop.thrown) std::rethrow_exception(loop.thrown);
}

}  // namespace gannet
