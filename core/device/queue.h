// A queue of an accelerator, which copies between host and device memory in order, asynchronously
// with respect to the caller and the compute streams.
//
//   Queue queue = accelerator.make_queue("copy");
//   Pin pin = accelerator.pin(host.data(), bytes);
//   queue.wait_stream(stream);             // compute may still be writing the source
//   queue.copy(host.data(), device, bytes);
//   Event saved = queue.record();
//   saved.block(stream);                   // from here on, compute may overwrite the source
//   saved.wait();                          // now the host may read the copy
//
// On an accelerator without queues the same code copies synchronously, and every event completes
// immediately.
#pragma once

#include <memory>

#include "device/accelerator.h"

namespace gannet {

// Calls a function of the plugin's table that releases one of the plugin's objects. `name`: the
// function's name.
void give_back(const Accelerator& accelerator, const char* name, void (*function)(void* self, void* handle),
               void* handle) noexcept;

template <auto kDestroy>
struct HandleDeleter {
  Accelerator* accelerator = nullptr;
  void operator()(void* handle) const noexcept { give_back(*accelerator, "destroy", accelerator->api()->*kDestroy, handle); }
};

// Marks all work that was submitted to a queue before the event was recorded. An event that was
// never recorded counts as complete. It may outlive its queue, but not the accelerator.
class Event {
 public:
  Event() = default;

  // is_over() and wait() throw the errors of earlier work in the queue.
  bool is_over() const;
  void wait() const;
  // Later work of the compute stream (Accelerator::native_stream of the queue's device) waits for
  // the event; the caller does not.
  void block(void* stream) const;

 private:
  friend class Queue;
  Event(Accelerator& accelerator, void* handle) : handle_(handle, {&accelerator}) {}
  std::unique_ptr<void, HandleDeleter<&gannet_accelerator_api::event_destroy>> handle_;  // null: the event counts as over
};

// Used by one thread at a time. Its destructor waits for its work; the plugin logs errors that were
// never reported.
class Queue {
 public:
  // Both buffers must stay valid and unchanged until an event recorded after the copy is over.
  void copy(void* to, const void* from, uint64_t bytes);
  Event record();
  // wait() makes later work in this queue wait for the event; wait_stream() makes it wait for the
  // work submitted to the compute stream so far.
  void wait(const Event& event);
  void wait_stream(void* stream);
  // Blocks the caller until all work is done.
  void synchronize() { record().wait(); }

 private:
  friend class Accelerator;
  Queue(Accelerator& accelerator, void* handle) : handle_(handle, {&accelerator}) {}
  std::unique_ptr<void, HandleDeleter<&gannet_accelerator_api::queue_destroy>> handle_;  // null: the accelerator has no queues
};

// Keeps host memory page-locked for its lifetime.
class Pin {
 public:
  Pin() = default;

 private:
  friend class Accelerator;
  struct PinDeleter {
    Accelerator* accelerator;
    void operator()(void* address) const noexcept;
  };
  Pin(Accelerator& accelerator, void* address) : address_(address, {&accelerator}) {}
  std::unique_ptr<void, PinDeleter> address_;  // null: nothing is pinned
};

}  // namespace gannet
