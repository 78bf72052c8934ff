// A flat array of a range (masters, a state, or this rank's parameters), in memory or on a tier of
// an Offload plugin.
//
//   Array states = Array::on_tier(tier, numel, at::kFloat, "exp_avg");
//   states.set(0, values);                         // synchronous, at any offset
//   Transfer coming = states.start_read(begin, numel, buffer);   // asynchronous, aligned; several may be in flight
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "interfaces/offload.h"
#include "tensor/stored_bytes.h"

namespace gannet {

// A read or write in flight. The destructor waits for it, after which the buffer belongs to the
// caller again.
class Transfer {
 public:
  Transfer() = default;
  Transfer(Offload* tier, void* work) : tier_(tier), work_(work) {}
  Transfer(Transfer&& other) noexcept : tier_(other.tier_), work_(std::exchange(other.work_, nullptr)) {}
  Transfer& operator=(Transfer&& other) noexcept;
  ~Transfer();
  void wait();  // throws the tier's Error; legal when nothing is in flight

 private:
  Offload* tier_ = nullptr;
  void* work_ = nullptr;
};

class Array {
 public:
  Array() = default;
  static Array in_memory(at::Tensor flat);
  // Initialized to zeros. A tier that has an address (host memory) gives an array in memory.
  static Array on_tier(std::shared_ptr<Offload> tier, int64_t numel, at::ScalarType dtype, const std::string& name);

  bool defined() const { return here_.defined() || region_; }
  bool is_here() const { return here_.defined(); }
  const at::Tensor& here() const { return here_; }
  at::ScalarType dtype() const { return dtype_; }
  int64_t numel() const { return numel_; }
  uint64_t bytes() const { return static_cast<uint64_t>(numel_) * c10::elementSize(dtype_); }

  // Elements [begin, begin + numel): a view of an array in memory, else a copy.
  at::Tensor get(int64_t begin, int64_t numel) const;
  void set(int64_t begin, const at::Tensor& values) const;
  void fill(double value) const;

  // For arrays on a tier. `begin` in bytes is a multiple of the tier's alignment. The buffer is
  // page-aligned and has room for `numel` rounded up to that alignment.
  Transfer start_read(int64_t begin, int64_t numel, void* buffer) const;
  Transfer start_write(int64_t begin, int64_t numel, const void* buffer) const;

  // For checkpoints: the elements from `begin` on of an array that is not in memory.
  std::shared_ptr<StoredBytes> stored(int64_t begin) const;

 private:
  struct TierRegion;
  class ArrayBytes;
  at::Tensor here_;
  std::shared_ptr<TierRegion> region_;
  at::ScalarType dtype_ = at::kFloat;
  int64_t numel_ = 0;
};

}  // namespace gannet
