// The devices' random number generators. Each wraps a LibTorch CPU generator.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <mutex>

namespace gannet::accelerators::checked {

const at::Generator& default_generator(uint32_t device);
at::Generator new_generator(uint32_t device);
// Returns the CPU generator behind a generator of this device type. Throws c10::Error for any other
// device type.
at::Generator cpu_generator_of(const at::Generator& generator);

// While it exists, the CPU's default generator draws from the device's state. For kernels that take
// no generator argument.
class DrawsForDevice {
 public:
  explicit DrawsForDevice(uint32_t device);
  ~DrawsForDevice();
  DrawsForDevice(const DrawsForDevice&) = delete;

 private:
  static std::recursive_mutex& mutex();
  const std::lock_guard<std::recursive_mutex> alone_;
  at::Generator ours_;
  c10::intrusive_ptr<c10::TensorImpl> cpus_state_;
};

}  // namespace gannet::accelerators::checked
