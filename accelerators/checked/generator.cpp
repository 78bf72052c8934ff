#include "generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <array>

#include "memory.h"
#include "streams.h"

namespace gannet::accelerators::checked {
namespace {

struct CheckedDeviceGenerator final : c10::GeneratorImpl {
  CheckedDeviceGenerator(uint32_t device, at::Generator behind)
      : GeneratorImpl(torch_device(device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), behind(std::move(behind)) {}
  static at::Generator make(uint32_t device) {
    return at::make_generator<CheckedDeviceGenerator>(device, at::detail::createCPUGenerator(c10::default_rng_seed_val));
  }
  c10::GeneratorImpl& impl() const { return *behind.unsafeGetGeneratorImpl(); }

  void set_current_seed(uint64_t seed) override { impl().set_current_seed(seed); }
  void set_offset(uint64_t offset) override { impl().set_offset(offset); }
  uint64_t get_offset() const override { return impl().get_offset(); }
  uint64_t current_seed() const override { return impl().current_seed(); }
  uint64_t seed() override { return impl().seed(); }
  void set_state(const c10::TensorImpl& state) override { impl().set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return impl().get_state(); }
  CheckedDeviceGenerator* clone_impl() const override {
    return new CheckedDeviceGenerator(static_cast<uint32_t>(device().index()), behind.clone());
  }

  at::Generator behind;
};

}  // namespace

const at::Generator& default_generator(uint32_t device) {
  static auto* const generators = [] {
    auto* made = new std::array<at::Generator, kMostDevices>;
    for (uint32_t i = 0; i < kMostDevices; ++i) (*made)[i] = CheckedDeviceGenerator::make(i);
    return made;
  }();
  return generators->at(device);
}

at::Generator new_generator(uint32_t device) { return CheckedDeviceGenerator::make(device); }

at::Generator cpu_generator_of(const at::Generator& generator) {
  TORCH_CHECK(generator.device().is_privateuseone(), "Expected a 'checked' device type for generator but found '",
              generator.device().type(), "'");
  return static_cast<CheckedDeviceGenerator*>(generator.unsafeGetGeneratorImpl())->behind;
}

// One mutex serves all devices, since they share the CPU's default generator.
std::recursive_mutex& DrawsForDevice::mutex() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}

DrawsForDevice::DrawsForDevice(uint32_t device) : alone_(mutex()), ours_(cpu_generator_of(default_generator(device))) {
  at::Generator cpu = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(cpu.mutex());
  cpus_state_ = cpu.unsafeGetGeneratorImpl()->get_state();
  cpu.unsafeGetGeneratorImpl()->set_state(*ours_.unsafeGetGeneratorImpl()->get_state());
}

DrawsForDevice::~DrawsForDevice() {
  at::Generator cpu = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(cpu.mutex());
  ours_.unsafeGetGeneratorImpl()->set_state(*cpu.unsafeGetGeneratorImpl()->get_state());
  cpu.unsafeGetGeneratorImpl()->set_state(*cpus_state_);
}

}  // namespace gannet::accelerators::checked
