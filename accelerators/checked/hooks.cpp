#include "hooks.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <algorithm>
#include <cstring>

#include "generator.h"
#include "memory.h"
#include "streams.h"

namespace gannet::accelerators::checked {
namespace {

uint32_t index_of(c10::DeviceIndex index) { return index < 0 ? current_device() : static_cast<uint32_t>(index); }

struct CheckedDeviceHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device()); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(index_of(device)); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = getCurrentDevice();
    setCurrentDevice(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(index_of(device)); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return new_generator(index_of(device)); }

  c10::Device getDeviceFromPtr(void* data) const override {
    TORCH_CHECK(Memory::get().is_device(data), "The specified pointer is not memory of a checked device");
    return torch_device(Memory::get().device_of(data));
  }
  bool isPinnedPtr(const void* data) const override { return Memory::get().is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override { resize_storage(storage, bytes); }
};

}  // namespace

void resize_storage(const c10::Storage& storage, size_t bytes) {
  c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl.resizable(), "Trying to resize storage that is not resizable");
  const Memory& memory = Memory::get();
  c10::DataPtr grown = Memory::get().allocate(static_cast<uint32_t>(impl.device().index()), bytes);
  if (const size_t kept = std::min(bytes, impl.nbytes()); kept > 0)
    std::memcpy(memory.alias(grown.get()), memory.alias(impl.mutable_data()), kept);
  impl.set_data_ptr_noswap(std::move(grown));
  impl.set_nbytes(bytes);
}

void register_hooks() {
  static CheckedDeviceHooks* const hooks = new CheckedDeviceHooks;
  at::RegisterPrivateUse1HooksInterface(hooks);
}

}  // namespace gannet::accelerators::checked
