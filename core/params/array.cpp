#include "params/array.h"

#include <ATen/ops/from_blob.h>
#include <gannet/log.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "tensor/flat_buffer.h"

namespace gannet {
namespace {

uint64_t rounded_down(uint64_t number, uint64_t multiple) { return number / multiple * multiple; }
uint64_t rounded_up(uint64_t number, uint64_t multiple) { return rounded_down(number + multiple - 1, multiple); }

constexpr uint64_t kStretchBytes = 8 << 20;  // size of a bounce buffer

}  // namespace

Transfer& Transfer::operator=(Transfer&& other) noexcept {
  std::swap(tier_, other.tier_);
  std::swap(work_, other.work_);
  return *this;
}

Transfer::~Transfer() {
  try {
    wait();
  } catch (const std::exception& error) {
    log(LogLevel::kError, error.what());
  }
}

void Transfer::wait() {
  if (work_) tier_->wait(std::exchange(work_, nullptr));
}

struct Array::TierRegion {
  std::shared_ptr<Offload> tier;
  void* handle = nullptr;
  uint64_t alignment = 1;
  std::mutex edges;  // guards the read-modify-write of blocks shared by two transfers

  ~TierRegion() {
    if (handle) tier->release(handle);
  }
  at::Tensor bounce_for(uint64_t bytes) const;
  void read(uint64_t begin, uint64_t bytes, char* to);
  void write(uint64_t begin, uint64_t bytes, const char* from);
};

// Allocates a buffer aligned for direct I/O. All transfers of one call reuse it.
at::Tensor Array::TierRegion::bounce_for(uint64_t bytes) const {
  return allocate_flat(static_cast<int64_t>(std::min(kStretchBytes, rounded_up(bytes, alignment)) + alignment), at::kByte,
                       at::kCPU);
}

// The offset and the length need not be aligned.
void Array::TierRegion::read(uint64_t begin, uint64_t bytes, char* to) {
  const at::Tensor bounce = bounce_for(bytes);
  char* const memory = static_cast<char*>(bounce.data_ptr());
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t at = rounded_down(begin + done, alignment), skip = begin + done - at,
                   size = std::min(kStretchBytes - skip, bytes - done);
    tier->wait(tier->read(handle, at, memory, rounded_up(skip + size, alignment)));
    std::memcpy(to + done, memory + skip, size);
    done += size;
  }
}

void Array::TierRegion::write(uint64_t begin, uint64_t bytes, const char* from) {
  const at::Tensor bounce = bounce_for(bytes);
  char* const memory = static_cast<char*>(bounce.data_ptr());
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t at = rounded_down(begin + done, alignment), skip = begin + done - at,
                   size = std::min(kStretchBytes - skip, bytes - done);
    const uint64_t whole = rounded_up(skip + size, alignment);
    std::unique_lock lock(edges, std::defer_lock);
    if (skip > 0 || whole != skip + size) {  // preserve the neighbouring bytes in the first and last block
      lock.lock();
      if (skip > 0) tier->wait(tier->read(handle, at, memory, alignment));
      if (whole != skip + size && (skip == 0 || whole > alignment))
        tier->wait(tier->read(handle, at + whole - alignment, memory + whole - alignment, alignment));
    }
    std::memcpy(memory + skip, from + done, size);
    tier->wait(tier->write(handle, at, memory, whole));
    done += size;
  }
}

class Array::ArrayBytes : public StoredBytes {
 public:
  ArrayBytes(std::shared_ptr<TierRegion> region, uint64_t offset) : region_(std::move(region)), offset_(offset) {}
  void copy_out(uint64_t begin, uint64_t bytes, char* to) const override { region_->read(offset_ + begin, bytes, to); }
  void copy_in(uint64_t begin, uint64_t bytes, const char* from) const override { region_->write(offset_ + begin, bytes, from); }

 private:
  std::shared_ptr<TierRegion> region_;
  uint64_t offset_;
};

Array Array::in_memory(at::Tensor flat) {
  Array array;
  array.dtype_ = flat.scalar_type();
  array.numel_ = flat.numel();
  array.here_ = std::move(flat);
  return array;
}

Array Array::on_tier(std::shared_ptr<Offload> tier, int64_t numel, at::ScalarType dtype, const std::string& name) {
  Array array;
  array.dtype_ = dtype;
  array.numel_ = numel;
  auto region = std::make_shared<TierRegion>();
  region->tier = std::move(tier);
  region->alignment = std::max<uint64_t>(region->tier->alignment_bytes(), 1);
  region->handle = region->tier->allocate(std::max(rounded_up(array.bytes(), region->alignment), region->alignment), name);
  if (void* address = region->tier->address(region->handle)) {
    array.here_ = at::from_blob(address, {numel}, [region](void*) {}, at::TensorOptions().dtype(dtype));
    return array;
  }
  array.region_ = std::move(region);
  return array;
}

at::Tensor Array::get(int64_t begin, int64_t numel) const {
  if (is_here()) return here_.narrow(0, begin, numel);
  const uint64_t size = c10::elementSize(dtype_);
  at::Tensor values = allocate_flat(numel, dtype_, at::kCPU);
  region_->read(static_cast<uint64_t>(begin) * size, static_cast<uint64_t>(numel) * size, static_cast<char*>(values.data_ptr()));
  return values;
}

void Array::set(int64_t begin, const at::Tensor& values) const {
  if (is_here()) {
    here_.narrow(0, begin, values.numel()).copy_(values);
    return;
  }
  const at::Tensor flat = values.to(at::kCPU, dtype_).contiguous();
  const uint64_t size = c10::elementSize(dtype_);
  region_->write(static_cast<uint64_t>(begin) * size, static_cast<uint64_t>(flat.numel()) * size,
                 static_cast<const char*>(flat.const_data_ptr()));
}

void Array::fill(double value) const {
  if (is_here()) {
    here_.fill_(value);
    return;
  }
  const int64_t stretch = static_cast<int64_t>(kStretchBytes / c10::elementSize(dtype_));
  at::Tensor values = allocate_flat(std::min(stretch, numel_), dtype_, at::kCPU);
  values.fill_(value);
  for (int64_t begin = 0; begin < numel_; begin += stretch) set(begin, values.narrow(0, 0, std::min(stretch, numel_ - begin)));
}

Transfer Array::start_read(int64_t begin, int64_t numel, void* buffer) const {
  const uint64_t size = c10::elementSize(dtype_);
  return {region_->tier.get(), region_->tier->read(region_->handle, static_cast<uint64_t>(begin) * size, buffer,
                                                   rounded_up(static_cast<uint64_t>(numel) * size, region_->alignment))};
}

Transfer Array::start_write(int64_t begin, int64_t numel, const void* buffer) const {
  const uint64_t size = c10::elementSize(dtype_);
  return {region_->tier.get(), region_->tier->write(region_->handle, static_cast<uint64_t>(begin) * size, buffer,
                                                    rounded_up(static_cast<uint64_t>(numel) * size, region_->alignment))};
}

std::shared_ptr<StoredBytes> Array::stored(int64_t begin) const {
  return std::make_shared<ArrayBytes>(region_, static_cast<uint64_t>(begin) * c10::elementSize(dtype_));
}

}  // namespace gannet
