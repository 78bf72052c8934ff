#include "activation/tier_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "activation/operators.h"

namespace gannet::activation {
namespace {

// Host memory aligned for direct I/O, from LibTorch's allocator, so that data read back counts as
// device memory if the host is the device.
at::Tensor aligned_bytes(uint64_t bytes, uint64_t alignment) {
  const at::Tensor memory = at::empty({static_cast<int64_t>(bytes + alignment)}, at::TensorOptions().dtype(at::kByte));
  const auto address = reinterpret_cast<uint64_t>(memory.data_ptr());
  return memory.narrow(0, static_cast<int64_t>((alignment - address % alignment) % alignment), static_cast<int64_t>(bytes));
}

// The minimum alignment of slots in a region, so that elements of every type are aligned.
constexpr uint64_t kSlotAlignment = 64;

at::Tensor as_bytes(const at::Tensor& flat) { return flat.view(at::kByte); }

}  // namespace

TierMemory::~TierMemory() {
  for (const auto& [bytes, region] : spare_) tier_->release(region);
}

// Shapes that change from step to step would leave spare pieces of every size behind. Therefore the
// total size of all pieces never exceeds the larger of the peak in use so far and the size of the
// pieces in use plus the requested one.
void* TierMemory::take(uint64_t& bytes, const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = spare_.lower_bound(bytes); found != spare_.end() && found->first <= bytes + bytes / 8) {
      void* const region = found->second;
      bytes = found->first;
      spare_bytes_ -= bytes;
      spare_.erase(found);
      most_used_bytes_ = std::max(most_used_bytes_, bytes_ - spare_bytes_);
      return region;
    }
    while (!spare_.empty() && bytes_ + bytes > most_used_bytes_) {
      const auto largest = std::prev(spare_.end());
      tier_->release(largest->second);
      bytes_ -= largest->first;
      spare_bytes_ -= largest->first;
      spare_.erase(largest);
    }
  }
  void* const region = tier_->allocate(bytes, name);
  const std::lock_guard lock(mutex_);
  bytes_ += bytes;
  most_used_bytes_ = std::max(most_used_bytes_, bytes_ - spare_bytes_);
  return region;
}

void TierMemory::give_back(void* region, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  spare_.emplace(bytes, region);
  spare_bytes_ += bytes;
}

uint64_t TierMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::shared_ptr<TierMemory::TierPiece> TierMemory::earliest_of_too_many() {
  const std::lock_guard lock(mutex_);
  while (writing_.size() >= most_writes_) {
    const auto earliest = writing_.front().lock();
    writing_.pop_front();
    if (earliest) return earliest;
  }
  return nullptr;
}

std::shared_ptr<TierMemory::TierPiece> TierMemory::new_piece(const at::Tensor& flat) const {
  const std::shared_ptr<TierPiece> piece(new TierPiece);
  piece->self_ = piece;
  piece->numel_ = flat.numel();
  piece->dtype_ = flat.scalar_type();
  piece->device_ = flat.device();
  piece->room_ = rounded_up(static_cast<uint64_t>(flat.numel()) * flat.itemsize());
  return piece;
}

std::shared_ptr<TierMemory::TierPiece> TierMemory::write(const at::Tensor& flat, const std::string& name) {
  const auto piece = new_piece(flat);
  piece->region_ = take(piece->room_, name);
  piece->memory_ = shared_from_this();
  fill(*piece, flat);
  return piece;
}

std::shared_ptr<TierMemory::SlotRegion> TierMemory::reserve(uint64_t slots, uint64_t bytes, const std::string& name) {
  // A tier that is accessed in place rather than in pages has alignment 1.
  const uint64_t room = (rounded_up(bytes) + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  uint64_t all = slots * room;
  const std::shared_ptr<SlotRegion> region(new SlotRegion);
  region->region_ = tier_->allocate(all, name);
  region->memory_ = shared_from_this();
  region->slots_ = slots;
  region->room_ = room;
  const std::lock_guard lock(mutex_);
  bytes_ += all;
  most_used_bytes_ = std::max(most_used_bytes_, bytes_ - spare_bytes_);
  return region;
}

TierMemory::SlotRegion::~SlotRegion() {
  if (!memory_) return;
  memory_->tier_->release(region_);
  const std::lock_guard lock(memory_->mutex_);
  memory_->bytes_ -= bytes();
}

std::shared_ptr<TierMemory::TierPiece> TierMemory::write(const at::Tensor& flat, const std::shared_ptr<SlotRegion>& region,
                                                         uint64_t slot, std::shared_ptr<void> keeper) {
  const auto piece = new_piece(flat);
  piece->region_ = region->region_;
  piece->offset_ = slot * region->room_;
  piece->place_ = std::make_shared<std::pair<std::shared_ptr<SlotRegion>, std::shared_ptr<void>>>(region, std::move(keeper));
  piece->memory_ = shared_from_this();
  fill(*piece, flat);
  return piece;
}

void TierMemory::fill(TierPiece& piece, const at::Tensor& flat) {
  if (const at::Tensor here = piece.in_place(); here.defined()) return copy_quietly(here, flat);
  while (const auto earliest = earliest_of_too_many()) earliest->wait_for_write();
  const int64_t bytes = flat.numel() * static_cast<int64_t>(flat.itemsize());
  piece.outgoing_ = aligned_bytes(piece.room_, alignment_);
  copy_quietly(piece.outgoing_.narrow(0, 0, bytes), as_bytes(flat));
  piece.write_ = Transfer(tier_.get(), tier_->write(piece.region_, piece.offset_, piece.outgoing_.data_ptr(), piece.room_));
  const std::lock_guard lock(mutex_);
  writing_.push_back(piece.self_);
}

TierMemory::TierPiece::~TierPiece() {
  read_ = Transfer();  // waits for the transfer
  write_ = Transfer();
  if (memory_ && !place_) memory_->give_back(region_, room_);
}

at::Tensor TierMemory::TierPiece::in_place() {
  char* const address = static_cast<char*>(memory_->tier_->address(region_));
  if (!address) return {};
  return at::from_blob(address + offset_, {numel_}, [piece = self_.lock()](void*) {}, at::TensorOptions().dtype(dtype_));
}

void TierMemory::TierPiece::wait_for_write() {
  const std::lock_guard lock(write_mutex_);  // the writer of a later piece may wait here while this one is being read
  write_.wait();
  outgoing_.reset();
}

void TierMemory::TierPiece::start_read() {
  if (incoming_.defined() || memory_->tier_->address(region_)) return;
  {
    // This piece was written recently: its outgoing host buffer still has the data.
    const std::lock_guard lock(write_mutex_);
    if (outgoing_.defined()) {
      incoming_ = outgoing_;
      return;
    }
  }
  incoming_ = aligned_bytes(room_, memory_->alignment_);
  read_ = Transfer(memory_->tier_.get(), memory_->tier_->read(region_, offset_, incoming_.data_ptr(), room_));
}

void TierMemory::TierPiece::drop_read() {
  read_.wait();
  incoming_.reset();
}

at::Tensor TierMemory::TierPiece::read() {
  if (const at::Tensor here = in_place(); here.defined()) return here.to(device_);
  start_read();
  read_.wait();
  const int64_t bytes = numel_ * static_cast<int64_t>(c10::elementSize(dtype_));
  return std::exchange(incoming_, at::Tensor()).narrow(0, 0, bytes).view(dtype_).to(device_);
}

}  // namespace gannet::activation
