// A queue of an accelerator: copies between host and device memory, in order, while the caller and the compute streams go on.
//
//   Queue queue = accelerator.make_queue("copy");
//   Pin pin = accelerator.pin(host.data(), bytes);
//   queue.wait_stream(stream);             // compute may still be writing the source
//   queue.copy(host.data(), device, bytes);
//   Event saved = queue.record();
//   saved.block(stream);                   // compute may overwrite it from here
//   saved.wait();                          // the host may read
//
// On an accelerator without queues the same code copies at once, and every event is over when it is made.
#pragma once

#include <memory>

#include "device/accelerator.h"

namespace gannet {

// A call of a function of the plugin's table that takes back what the plugin made. `name`: the function's.
void give_back(const Accelerator& accelerator, const char* name, void (*function)(void* self, void* handle),
               void* handle) noexcept;

template <auto kDestroy>
struct GiveBack {
  Accelerator* accelerator = nullptr;
  void operator()(void* handle) const noexcept { give_back(*accelerator, "destroy", accelerator->api()->*kDestroy, handle); }
};

// All that a queue had been given when it was asked to record. One that was recorded nowhere is over. May outlive its queue, but
// not the accelerator.
class Event {
 public:
  Event() = default;

  // Both throw what failed in the queue before it.
  bool is_over() const;
  void wait() const;
  // Later work of the compute stream (Accelerator::native_stream of the queue's device) waits for it; the caller does not.
  void block(void* stream) const;

 private:
  friend class Queue;
  Event(Accelerator& accelerator, void* handle) : handle_(handle, {&accelerator}) {}
  std::unique_ptr<void, GiveBack<&gannet_accelerator_api::event_destroy>> handle_;  // null: over
};

// Used by one thread at a time. Going away, it waits for its work: what still failed then, and nobody asked for, is logged by the
// plugin.
class Queue {
 public:
  // Both buffers must live, and stay as they are, until an event recorded behind the copy is over.
  void copy(void* to, const void* from, uint64_t bytes);
  Event record();
  // What is given from now on begins after the event, or after what the compute stream has been given so far.
  void wait(const Event& event);
  void wait_stream(void* stream);
  // Blocks the caller until all is done.
  void synchronize() { record().wait(); }

 private:
  friend class Accelerator;
  Queue(Accelerator& accelerator, void* handle) : handle_(handle, {&accelerator}) {}
  std::unique_ptr<void, GiveBack<&gannet_accelerator_api::queue_destroy>> handle_;  // null: the accelerator has no queues
};

// Host memory that is page-locked for as long as this lives.
class Pin {
 public:
  Pin() = default;

 private:
  friend class Accelerator;
  struct Unpin {
    Accelerator* accelerator;
    void operator()(void* address) const noexcept;
  };
  Pin(Accelerator& accelerator, void* address) : address_(address, {&accelerator}) {}
  std::unique_ptr<void, Unpin> address_;  // null: nothing is pinned
};

}  // namespace gannet
