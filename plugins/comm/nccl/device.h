// The device's queues and events, by the accelerator's table.
#pragma once

#include <gannet/abi.h>

#include <gannet/sdk_errors.hpp>
#include <string>
#include <utility>

namespace gannet_nccl {

class Device {
 public:
  explicit Device(const gannet_rendezvous& rendezvous)
      : api_(rendezvous.accelerator), self_(rendezvous.accelerator_self), index_(rendezvous.device) {}
  const gannet_accelerator_api& api() const { return *api_; }
  void* self() const { return self_; }
  uint32_t index() const { return index_; }
  // Whether a library can submit work to its queues.
  bool has_streams() const {
    return api_ && api_->queue_create && GANNET_HAS(api_, gannet_accelerator_api, queue_stream) && api_->queue_stream;
  }
  void make_current() const {
    call([&](gannet_error* error) { return api_->set_device(self_, index_, error); });
  }

  template <class Call>
  static void call(Call&& function) {
    char text[2048] = "";
    gannet_error error{sizeof(gannet_error), 0, sizeof(text), text};
    if (const int32_t status = function(&error); status != GANNET_OK)
      throw gannet::sdk::Failure(static_cast<gannet_status>(status), text);
  }

 private:
  const gannet_accelerator_api* api_;
  void* self_;
  uint32_t index_;
};

class Event {
 public:
  Event(const Device& device, void* queue) : device_(device) {
    Device::call([&](gannet_error* error) { return device_.api().event_record(device_.self(), queue, &event_, error); });
  }
  Event(const Event&) = delete;
  ~Event() { device_.api().event_destroy(device_.self(), event_); }
  bool is_over() const {
    int32_t is_over = 0;
    Device::call([&](gannet_error* error) { return device_.api().event_query(device_.self(), event_, &is_over, error); });
    return is_over != 0;
  }
  void wait() const {
    Device::call([&](gannet_error* error) { return device_.api().event_wait(device_.self(), event_, error); });
  }
  void block(void* stream) const {
    Device::call([&](gannet_error* error) { return device_.api().stream_wait_event(device_.self(), stream, event_, error); });
  }

 private:
  const Device device_;
  void* event_ = nullptr;
};

class Queue {
 public:
  Queue(const Device& device, const std::string& name) : device_(device) {
    Device::call([&](gannet_error* error) {
      return device_.api().queue_create(device_.self(), device_.index(), name.c_str(), &queue_, error);
    });
  }
  Queue(const Queue&) = delete;
  ~Queue() { device_.api().queue_destroy(device_.self(), queue_); }  // waits for the queue's work
  void* stream() const { return device_.api().queue_stream(device_.self(), queue_); }
  void wait_stream(void* stream) {
    Device::call([&](gannet_error* error) { return device_.api().queue_wait_stream(device_.self(), queue_, stream, error); });
  }
  void copy(void* to, const void* from, uint64_t bytes) {
    Device::call([&](gannet_error* error) { return device_.api().queue_copy(device_.self(), queue_, to, from, bytes, error); });
  }
  void* handle() const { return queue_; }

 private:
  const Device device_;
  void* queue_ = nullptr;
};

// Memory of the host that the device can read and write: 64 bytes of a page of its own.
class PinnedPage {
 public:
  explicit PinnedPage(const Device& device) : device_(device) {
    Device::call([&](gannet_error* error) { return device_.api().pin(device_.self(), page_, sizeof(page_), error); });
  }
  PinnedPage(const PinnedPage&) = delete;
  ~PinnedPage() { device_.api().unpin(device_.self(), page_, nullptr); }
  void* data() { return page_; }

 private:
  const Device device_;
  alignas(4096) char page_[4096] = {};
};

}  // namespace gannet_nccl
