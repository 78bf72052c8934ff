// A flat array of a range (masters, a state, this rank's parameters): in memory, or on a tier of an Offload plugin.
//
//   Array states = Array::on_tier(tier, numel, at::kFloat, "exp_avg");
//   states.set(0, values);                         // at once, wherever it begins
//   Transfer coming = states.start_read(begin, numel, buffer);   // in the background, aligned; several at a time
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "interfaces/offload.h"
#include "tensor/stored_bytes.h"

namespace gannet {

// A read or write in flight. Going away, it waits: the buffer is the caller's again.
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
  // Zeros. A tier that has an address (host memory) gives an array that is here.
  static Array on_tier(std::shared_ptr<Offload> tier, int64_t numel, at::ScalarType dtype, const std::string& name);

  bool defined() const { return here_.defined() || region_; }
  bool is_here() const { return here_.defined(); }
  const at::Tensor& here() const { return here_; }
  at::ScalarType dtype() const { return dtype_; }
  int64_t numel() const { return numel_; }
  uint64_t bytes() const { return static_cast<uint64_t>(numel_) * c10::elementSize(dtype_); }

  // Elements [begin, begin + numel): a view of what is here, else a copy in memory.
  at::Tensor get(int64_t begin, int64_t numel) const;
  void set(int64_t begin, const at::Tensor& values) const;
  void fill(double value) const;

  // On a tier. In bytes, `begin` is a multiple of the tier's alignment; the buffer has room for `numel` rounded up to it, and
  // begins on a page.
  Transfer start_read(int64_t begin, int64_t numel, void* buffer) const;
  Transfer start_write(int64_t begin, int64_t numel, const void* buffer) const;

  // For checkpoints: elements from `begin` on of an array that is not here.
  std::shared_ptr<StoredBytes> stored(int64_t begin) const;

 private:
  struct Region;
  class Stored;
  at::Tensor here_;
  std::shared_ptr<Region> region_;
  at::ScalarType dtype_ = at::kFloat;
  int64_t numel_ = 0;
};

}  // namespace gannet
