#include "device/queue.h"

#include <gannet/log.h>

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "interfaces/call.h"

namespace gannet {
namespace {

// Calls a function of the plugin's table on this accelerator.
template <class Function, class... Arguments>
void call(const Accelerator& accelerator, const char* name, Function gannet_accelerator_api::* function, Arguments... arguments) {
  interfaces::call(accelerator.plugin(), {name}, accelerator.api()->*function, accelerator.self(), arguments...);
}

template <class Handle>
Accelerator& accelerator_of(const Handle& handle) {
  return *handle.get_deleter().accelerator;
}

}  // namespace

void give_back(const Accelerator& accelerator, const char* name, void (*function)(void*, void*), void* handle) noexcept {
  interfaces::marked(accelerator.plugin(), {name}, function, accelerator.self(), handle);
}

// ---- Event -----------------------------------------------------------------------------------------------------------

bool Event::is_over() const {
  int32_t is_over = 1;
  if (handle_) call(accelerator_of(handle_), "event_query", &gannet_accelerator_api::event_query, handle_.get(), &is_over);
  return is_over != 0;
}

void Event::wait() const {
  if (handle_) call(accelerator_of(handle_), "event_wait", &gannet_accelerator_api::event_wait, handle_.get());
}

void Event::block(void* stream) const {
  if (handle_)
    call(accelerator_of(handle_), "stream_wait_event", &gannet_accelerator_api::stream_wait_event, stream, handle_.get());
}

// ---- Queue -----------------------------------------------------------------------------------------------------------

void Queue::copy(void* to, const void* from, uint64_t bytes) {
  if (bytes == 0) return;
  GANNET_CHECK(to && from);
  if (handle_)
    call(accelerator_of(handle_), "queue_copy", &gannet_accelerator_api::queue_copy, handle_.get(), to, from, bytes);
  else
    std::memcpy(to, from, bytes);
}

Event Queue::record() {
  if (!handle_) return {};
  void* event = nullptr;
  call(accelerator_of(handle_), "event_record", &gannet_accelerator_api::event_record, handle_.get(), &event);
  return Event(accelerator_of(handle_), event);
}

void Queue::wait(const Event& event) {
  if (!event.handle_) return;
  if (handle_)
    call(accelerator_of(handle_), "queue_wait_event", &gannet_accelerator_api::queue_wait_event, handle_.get(),
         event.handle_.get());
  else
    event.wait();  // an event of another accelerator
}

void Queue::wait_stream(void* stream) {
  if (handle_)
    call(accelerator_of(handle_), "queue_wait_stream", &gannet_accelerator_api::queue_wait_stream, handle_.get(), stream);
}

// ---- Pin -------------------------------------------------------------------------------------------------------------

void Pin::PinDeleter::operator()(void* address) const noexcept {
  try {
    call(*accelerator, "unpin", &gannet_accelerator_api::unpin, address);
  } catch (const std::exception& error) {
    try {
      log_warning(std::string("host memory stays page-locked: ") + error.what());
    } catch (...) {  // out of memory for the message
    }
  }
}

// ---- Accelerator -----------------------------------------------------------------------------------------------------

Queue Accelerator::make_queue(const std::string& queue_name, uint32_t index) {
  void* queue = nullptr;
  if (has(GANNET_ACCELERATOR_QUEUES))
    call(*this, "queue_create", &gannet_accelerator_api::queue_create, index, queue_name.c_str(), &queue);
  else if (has(GANNET_ACCELERATOR_SEPARATE_MEMORY))
    throw Error(ErrorCode::kUnsupported,
                formatted("{} has memory of its own and no queues that copy from and to it", interfaces::who(plugin_)),
                "leave out what moves memory between host and device (offload), or use a version of the plugin with queues");
  return Queue(*this, queue);
}

Pin Accelerator::pin(void* address, uint64_t bytes) {
  if (bytes == 0 || !has(GANNET_ACCELERATOR_QUEUES)) return {};
  try {
    call(*this, "pin", &gannet_accelerator_api::pin, address, bytes);
  } catch (const Error& error) {
    if (!std::exchange(pin_failure_is_said_, true))
      log_warning(
          formatted("host memory stays pageable, so that copies from and to the device make the host wait: {}", error.what()));
    return {};
  }
  return Pin(*this, address);
}

}  // namespace gannet
