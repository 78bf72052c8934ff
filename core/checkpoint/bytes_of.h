// Access to the bytes of a contiguous tensor, with copies to and from host memory on any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "tensor/stored_bytes.h"

namespace gannet::checkpoint {

class BytesOf {
 public:
  // Stores the current stream of the tensor's device. Copies made by other threads are queued on
  // it.
  explicit BytesOf(const at::Tensor& tensor, std::shared_ptr<StoredBytes> stored = nullptr)
      : tensor_(tensor), stored_(std::move(stored)) {
    if (stored_ || tensor.is_cpu() || tensor.numel() == 0) return;
    stream_ = c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
    bytes_ = tensor.detach().view({-1}).view(at::kByte);
  }

  // The bytes, if this thread can write to them; null on a device or a tier.
  char* memory() const { return stream_ || stored_ ? nullptr : static_cast<char*>(tensor_.mutable_data_ptr()); }

  void copy_out(uint64_t begin, uint64_t bytes, char* to) const {
    if (stored_) return stored_->copy_out(begin, bytes, to);
    if (!stream_) {
      std::memcpy(to, static_cast<const char*>(tensor_.const_data_ptr()) + begin, bytes);
      return;
    }
    const c10::StreamGuard guard(*stream_);
    host(to, bytes).copy_(bytes_.narrow(0, static_cast<int64_t>(begin), static_cast<int64_t>(bytes)));
  }

  void copy_in(uint64_t begin, uint64_t bytes, const char* from) const {
    if (stored_) return stored_->copy_in(begin, bytes, from);
    if (!stream_) {
      std::memcpy(static_cast<char*>(tensor_.mutable_data_ptr()) + begin, from, bytes);
      return;
    }
    const c10::StreamGuard guard(*stream_);
    bytes_.narrow(0, static_cast<int64_t>(begin), static_cast<int64_t>(bytes)).copy_(host(const_cast<char*>(from), bytes));
  }

 private:
  static at::Tensor host(char* memory, uint64_t bytes) { return at::from_blob(memory, {static_cast<int64_t>(bytes)}, at::kByte); }

  // tensor_ keeps the storage alive. bytes_ is the same memory as [nbytes] uint8; it is set only on
  // a device.
  at::Tensor tensor_, bytes_;
  std::shared_ptr<StoredBytes> stored_;
  std::optional<c10::Stream> stream_;  // set only on a device
};

}  // namespace gannet::checkpoint
