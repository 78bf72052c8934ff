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
  void wait();  // throws the tier's Error; may be called when nothing is in flight

 private:
  Offload* tier_ = nullptr;
  void* work_ = nullptr;
};

class Array {
 public:
  Array() = default;
  static Array in_memory(at::Tensor flat);
  // The array is initialised to zeros. If the tier's memory is addressable (host memory), the
  // result is an in-memory array.
  static Array on_tier(std::shared_ptr<Offload> tier, int64_t numel, at::ScalarType dtype, const std::string& name);

  bool defined() const { return here_.defined() || region_; }
  bool is_here() const { return here_.defined(); }
  const at::Tensor& here() const { return here_; }
  at::ScalarType dtype() const { return dtype_; }
  int64_t numel() const { return numel_; }
  uint64_t bytes() const { return static_cast<uint64_t>(numel_) * c10::elementSize(dtype_); }

  // Returns elements [begin, begin + numel): a view if the array is in memory, otherwise a copy.
  at::Tensor get(int64_t begin, int64_t numel) const;
  void set(int64_t begin, const at::Tensor& values) const;
  void fill(double value) const;

  // Only for arrays on a tier. `begin`, converted to bytes, must be a multiple of the tier's
  // alignment. The buffer must be page-aligned, and large enough for the bytes of `numel` elements
  // rounded up to that alignment.
  Transfer start_read(int64_t begin, int64_t numel, void* buffer) const;
  Transfer start_write(int64_t begin, int64_t numel, const void* buffer) const;

  // Returns the elements from `begin` on, for checkpoints. The array must not be in memory.
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
