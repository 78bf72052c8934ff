#include "tensor/host_meter.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace gannet {
namespace {

std::atomic<HostMeter*> installed{nullptr};

// Works like LibTorch's default allocator (c10/core/CPUAllocator.cpp), including the reports to a
// profiler, and also counts.
class MeteredAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    try {
      memory = c10::alloc_cpu(bytes);
    } catch (const c10::Error&) {
      c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
      throw;
    }
    c10::profiledCPUMemoryReporter().New(memory, bytes);
    if (memory) installed.load()->given(static_cast<int64_t>(::malloc_usable_size(memory)));
    return {memory, memory, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* into, const void* from, size_t bytes) const override { std::memcpy(into, from, bytes); }

 private:
  static void give_back(void* memory) {
    if (!memory) return;
    installed.load()->returned(static_cast<int64_t>(::malloc_usable_size(memory)));
    c10::profiledCPUMemoryReporter().Delete(memory);
    c10::free_cpu(memory);
  }
};

}  // namespace

HostMeter* HostMeter::install() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (installed) return installed;
  if (c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator()) return nullptr;
  static auto* const meter = new HostMeter;
  static auto* const allocator = new MeteredAllocator;  // never destroyed: threads may free memory while the process ends
  installed = meter;
  c10::SetCPUAllocator(allocator);
  return meter;
}

HostMeter* HostMeter::here() { return installed; }

void HostMeter::given(int64_t bytes) {
  const int64_t now = live_ += bytes;
  for (int64_t before = peak_; now > before && !peak_.compare_exchange_weak(before, now);) {
  }
}

void HostMeter::set_aside(int64_t bytes) { live_ -= bytes; }

void HostMeter::begin() {
  base_ = live_.load();
  peak_ = live_.load();
}

int64_t HostMeter::peak() const { return std::max<int64_t>(0, peak_ - base_); }

}  // namespace gannet
