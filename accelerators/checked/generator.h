// The devices' random numbers: a generator of LibTorch's CPU kind behind each of the device's.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <mutex>

namespace gannet::accelerators::checked {

const at::Generator& default_generator(uint32_t device);
at::Generator new_generator(uint32_t device);
// The CPU's generator behind one of this device's. Throws c10::Error where it is another device's.
at::Generator cpu_generator_of(const at::Generator& generator);

// While it lives, the CPU's default generator draws what the device's would: for kernels that take no generator.
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
