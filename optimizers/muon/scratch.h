// Memory that is kept between calls and only grows. Growing discards its contents.
//
//   float* x = scratch.floats(rows * columns);      // aligned to 64 bytes
#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace gannet::rules {

class Scratch {
 public:
  float* floats(uint64_t count) { return static_cast<float*>(bytes(count * sizeof(float))); }
  double* doubles(uint64_t count) { return static_cast<double*>(bytes(count * sizeof(double))); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct AlignedDeleter {
    void operator()(void* memory) const { ::operator delete(memory, kAlignment); }
  };
  void* bytes(uint64_t count) {
    if (count > bytes_) {
      memory_.reset();  // frees the old memory before the larger allocation
      bytes_ = 0;
      memory_.reset(::operator new(count, kAlignment));
      bytes_ = count;
    }
    return memory_.get();
  }
  std::unique_ptr<void, AlignedDeleter> memory_;
  uint64_t bytes_ = 0;
};

}  // namespace gannet::rules
