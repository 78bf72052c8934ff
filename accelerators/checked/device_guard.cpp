#include "device_guard.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "memory.h"
#include "streams.h"

namespace gannet::accelerators::checked {
namespace {

// Implements LibTorch's interface to devices, streams and events, which autograd uses to order the
// streams of forward and backward.
struct CheckedDeviceGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return torch_device(current_device()); }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) set_current_device(static_cast<uint32_t>(device.index()));
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index() && static_cast<uint32_t>(device.index()) < device_count())
      set_current_device(static_cast<uint32_t>(device.index()));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }
  void synchronizeDevice(const c10::DeviceIndex) const override { Checker::get().host_waits_for_all(); }

  c10::Stream getStream(c10::Device device) const override { return stream(device, current_stream(index_of(device)).id); }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return stream(device, next_of_pool(index_of(device)));
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return stream(device, next_of_pool(index_of(device))); }
  c10::Stream exchangeStream(c10::Stream given) const override {
    return stream(given.device(), exchange_stream(index_of(given.device()), given.id()));
  }
  void* getStreamNativeHandle(const c10::Stream given) const override { return &stream_of(given); }
  bool queryStream(const c10::Stream& given) const override {
    Checker::get().host_learns(Checker::get().record(stream_of(given).actor));
    return true;
  }
  void synchronizeStream(const c10::Stream& given) const override { Checker::get().host_waits_for(stream_of(given).actor); }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& given) const override {
    Memory::get().record_use(pointer.get(), stream_of(given).actor);
  }

  void record(void** event, const c10::Stream& given, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) *event = new Event;
    static_cast<Event*>(*event)->clock = Checker::get().record(stream_of(given).actor);
  }
  void block(void* event, const c10::Stream& given) const override {
    if (event) Checker::get().wait(stream_of(given).actor, static_cast<Event*>(event)->clock);
  }
  bool queryEvent(void* event) const override {
    if (event) Checker::get().host_learns(static_cast<Event*>(event)->clock);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event) Checker::get().host_waits(static_cast<Event*>(event)->clock);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }

 private:
  static uint32_t index_of(c10::Device device) {
    return device.has_index() ? static_cast<uint32_t>(device.index()) : current_device();
  }
  static c10::Stream stream(c10::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, torch_device(index_of(device)), id);
  }
};

}  // namespace

void register_device_guard() {
  static CheckedDeviceGuard* const guard = new CheckedDeviceGuard;
  c10::impl::registerDeviceGuard(c10::DeviceType::PrivateUse1, guard);
}

}  // namespace gannet::accelerators::checked
