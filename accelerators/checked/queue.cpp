#include "queue.h"

#include <cstring>
#include <gannet/sdk.hpp>

#include "memory.h"
#include "streams.h"

namespace gannet::accelerators::checked {

bool QueueEvent::is_over() {
  Checker::get().host_learns(clock_);
  return true;
}

void QueueEvent::wait() { Checker::get().host_waits(clock_); }

// If there is no stream, the caller waits.
void QueueEvent::block(void* stream) {
  if (stream)
    Checker::get().wait(static_cast<Stream*>(stream)->actor, clock_);
  else
    wait();
}

void CheckedQueue::copy(void* to, const void* from, uint64_t bytes) {
  if (!to || !from) throw sdk::Failure(GANNET_INVALID_ARGUMENT, "a copy needs two addresses, and one of them is null");
  const Memory& memory = Memory::get();
  std::memmove(memory.alias(to), memory.alias(from), bytes);
  const auto source = reinterpret_cast<uint64_t>(from), target = reinterpret_cast<uint64_t>(to);
  const Access accesses[] = {{source, source + bytes, false}, {target, target + bytes, true}};
  ++Checker::get().counters().copies;
  const char* name = !memory.is_device(to) ? "a copy to the host" : memory.is_device(from) ? "a copy" : "a copy to the device";
  Checker::get().launch(actor_, name, accesses);
}

void CheckedQueue::wait_stream(void* stream) {
  if (stream) Checker::get().wait(actor_, Checker::get().record(static_cast<Stream*>(stream)->actor));
}

}  // namespace gannet::accelerators::checked
