// The host's parallel loop: the one behind gannet_host::parallel_for and behind the core's own passes over memory.
// Called from the engine's thread only. Bodies return codes and throw nothing.
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <type_traits>

namespace gannet {

int32_t parallel_for(uint64_t begin, uint64_t end, uint64_t grain, gannet_loop_body body, void* argument);
uint32_t parallel_thread_count();

// body(begin, end), noexcept.
template <class Body>
void parallel_for(uint64_t begin, uint64_t end, uint64_t grain, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  parallel_for(
      begin, end, grain,
      [](void* argument, uint64_t first, uint64_t last) -> int32_t {
        (*static_cast<Plain*>(argument))(first, last);
        return GANNET_OK;
      },
      const_cast<std::remove_const_t<Plain>*>(&body));
}

}  // namespace gannet
