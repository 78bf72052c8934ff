#include "queue.h"

#include <cstring>
#include <gannet/sdk.hpp>

#include "memory.h"
#include "streams.h"

namespace gannet::accelerators::checked {

bool QueueEvent::is_over() {
  if (ran_ && !ran_->is_over()) return false;
  Checker::get().host_learns(clock_);
  return true;
}

void QueueEvent::wait_until_run() {
  if (ran_) ran_->wait();
}

void QueueEvent::wait() {
  wait_until_run();
  Checker::get().host_waits(clock_);
}

// If there is no stream, the caller waits. The stream's work runs on the caller's thread, so this
// thread also waits for the library's work; the host's clock is not advanced.
void QueueEvent::block(void* stream) {
  if (!stream) return wait();
  wait_until_run();
  Checker::get().wait(static_cast<Stream*>(stream)->actor, clock_);
}

CheckedQueue::~CheckedQueue() {
  library_.reset();  // waits for the library's work
  Checker::get().end(actor_);
}

QueueEvent CheckedQueue::record() {
  return {Checker::get().record(actor_), library_ ? std::optional(library_->record()) : std::nullopt};
}

// Copies run immediately, so the host waits for the work before the event.
void CheckedQueue::wait(QueueEvent& event) {
  event.wait_until_run();
  Checker::get().wait(actor_, event.clock());
}

void CheckedQueue::submit(const char* operation, const std::vector<MemoryUse>& uses, std::function<void()> work) {
  std::vector<Access> accesses;
  for (const MemoryUse& use : uses) {
    const auto begin = reinterpret_cast<uint64_t>(use.begin);
    if (use.bytes > 0) accesses.push_back({begin, begin + use.bytes, use.writes});
  }
  ++Checker::get().counters().collectives;
  ++Checker::get().counters().collective_launches;
  Checker::get().launch(actor_, operation, accesses);
  if (!library_) library_ = std::make_unique<FakeQueue>(host_, name_, Bus{}, 0);
  library_->run_late(std::move(work));
}

void* CheckedQueue::memory(const void* address) { return const_cast<void*>(Memory::get().alias(address)); }

void CheckedQueue::copy(void* to, const void* from, uint64_t bytes) {
  if (!to || !from) throw sdk::Failure(GANNET_INVALID_ARGUMENT, "a copy needs two addresses, and one of them is null");
  if (library_) library_->record().wait();
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
