// Pieces of memory on a tier (an Offload plugin: the host, a drive) for data that is kept for
// backward. A piece is written once, and read by each backward. The memory of freed pieces is
// reused for later pieces of about the same size.
//
//   const auto piece = memory->write(flat, "inputs of the region 'block'");   // on a drive: writes in the background
//   piece->start_read();                                                      // on a drive: starts the next read()'s transfer
//   at::Tensor values = piece->read();
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "interfaces/offload.h"
#include "params/array.h"

namespace gannet::activation {

class TierMemory : public std::enable_shared_from_this<TierMemory> {
 public:
  // The tier's registry and host table must live as long as this object. At most `most_writes`
  // writes are in flight at a time; each holds a copy in host memory.
  explicit TierMemory(std::shared_ptr<Offload> tier, size_t most_writes = 1)
      : tier_(std::move(tier)), alignment_(tier_->alignment_bytes()), most_writes_(most_writes) {}
  ~TierMemory();
  TierMemory(const TierMemory&) = delete;

  const plugin::Plugin& plugin() const { return tier_->plugin(); }

  // A range of the tier divided into equal-sized slots. The caller chooses the slot that a piece is
  // written to.
  class SlotRegion {
   public:
    ~SlotRegion();
    SlotRegion(const SlotRegion&) = delete;
    uint64_t bytes() const { return slots_ * room_; }

   private:
    friend class TierMemory;
    SlotRegion() = default;
    std::shared_ptr<TierMemory> memory_;
    void* region_ = nullptr;
    uint64_t slots_ = 0, room_ = 0;
  };

  class TierPiece {
   public:
    ~TierPiece();
    TierPiece(const TierPiece&) = delete;
    void start_read();
    /// Discards a read that start_read() began, if no read() has consumed its data.
    void drop_read();
    /// Returns [numel] elements with the dtype and device of the written tensor. If the tier is
    /// addressable and the device is the CPU, the tensor uses the piece's own memory. Call it from
    /// one thread at a time.
    at::Tensor read();

   private:
    friend class TierMemory;
    TierPiece() = default;
    at::Tensor in_place();
    void wait_for_write();

    std::shared_ptr<TierMemory> memory_;
    std::weak_ptr<TierPiece> self_;
    void* region_ = nullptr;
    uint64_t offset_ = 0, room_ = 0;  // bytes
    std::shared_ptr<void> place_;     // keeps the caller's region and its `keeper` alive; null: the piece owns its region
    int64_t numel_ = 0;
    at::ScalarType dtype_ = at::kFloat;
    at::Device device_ = at::kCPU;
    std::mutex write_mutex_;
    at::Tensor outgoing_, incoming_;  // page-aligned host memory, set while a transfer uses it
    Transfer write_, read_;           // declared after the tensors, so that they are destroyed (and wait) first
  };

  /// Writes `flat`, which is contiguous and one-dimensional, to a new piece. The caller may
  /// overwrite `flat` when this returns. Throws the tier's Error, for example if a drive is full. A
  /// later call throws the error of a background write.
  std::shared_ptr<TierPiece> write(const at::Tensor& flat, const std::string& name);

  /// Allocates `slots` slots for pieces of at most `bytes` each.
  std::shared_ptr<SlotRegion> reserve(uint64_t slots, uint64_t bytes, const std::string& name);
  /// Like write() above, but into a slot of a reserved region. `keeper` is kept alive as long as the
  /// piece.
  std::shared_ptr<TierPiece> write(const at::Tensor& flat, const std::shared_ptr<SlotRegion>& region, uint64_t slot,
                                   std::shared_ptr<void> keeper);

  /// Bytes of reserved regions, of pieces in use and of spare pieces.
  uint64_t bytes() const;

 private:
  std::shared_ptr<TierPiece> new_piece(const at::Tensor& flat) const;
  void fill(TierPiece& piece, const at::Tensor& flat);
  uint64_t rounded_up(uint64_t bytes) const { return (bytes + alignment_ - 1) / alignment_ * alignment_; }
  // Returns a region of at least `bytes` bytes and sets `bytes` to its size.
  void* take(uint64_t& bytes, const std::string& name);
  void give_back(void* region, uint64_t bytes);
  // Returns the earliest piece whose write is in flight, if no further write may start; null if one
  // may.
  std::shared_ptr<TierPiece> earliest_of_too_many();

  const std::shared_ptr<Offload> tier_;
  const uint64_t alignment_;
  const size_t most_writes_;
  mutable std::mutex mutex_;
  std::multimap<uint64_t, void*> spare_;          // by size in bytes
  std::deque<std::weak_ptr<TierPiece>> writing_;  // earliest first; excludes those that a thread is waiting for
  uint64_t bytes_ = 0, spare_bytes_ = 0, most_used_bytes_ = 0;
};

}  // namespace gannet::activation
