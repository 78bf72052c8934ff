#include "requests.h"

#include <algorithm>

namespace nvme {
namespace {

// Returns the number of pieces in [offset, offset + bytes).
uint64_t piece_count(const Region& region, uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return 0;
  return (offset + bytes - 1) / region.block_size - offset / region.block_size + 1;
}

TransferPiece cut_first(TransferPiece& left) {
  TransferPiece piece = left;
  piece.bytes = std::min(left.bytes, left.region->block_size - left.offset % left.region->block_size);
  left.offset += piece.bytes;
  left.buffer += piece.bytes;
  left.bytes -= piece.bytes;
  return piece;
}

}  // namespace

Work* Requests::add(Region& region, uint64_t offset, char* buffer, uint64_t bytes, bool is_write) {
  auto owned = std::make_unique<Work>();
  Work* work = owned.get();
  work->pieces_open = piece_count(region, offset, bytes);
  const bool several = work->pieces_open > 1;
  {
    const std::lock_guard lock(mutex_);
    works_.emplace(work, std::move(owned));
    if (bytes == 0) return work;
    queue_.push_back({work, &region, buffer, offset, bytes, is_write});
    region.requests_open += 1;
  }
  several ? arrived_.notify_all() : arrived_.notify_one();
  return work;
}

void Requests::wait(Work* work) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return work->pieces_open == 0; });
  const auto node = works_.extract(work);
  lock.unlock();
  if (work->failure) throw *work->failure;
}

void Requests::wait_for(const Region& region) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return region.requests_open == 0; });
}

void Requests::take(size_t limit, bool may_sleep, std::vector<TransferPiece>& pieces) {
  std::unique_lock lock(mutex_);
  if (may_sleep) arrived_.wait(lock, [&] { return closed_ || !queue_.empty(); });
  for (; limit > 0 && !queue_.empty(); --limit) {
    TransferPiece& left = queue_.front();
    pieces.push_back(cut_first(left));
    if (left.bytes == 0) queue_.pop_front();
  }
}

void Requests::done(const std::vector<PieceOutcome>& outcomes) {
  bool finished = false;
  {
    const std::lock_guard lock(mutex_);
    for (const PieceOutcome& outcome : outcomes) finished |= finish(outcome);
  }
  if (finished) finished_.notify_all();
}

bool Requests::finish(const PieceOutcome& outcome) {
  Work& work = *outcome.piece.work;
  if (outcome.failure && !work.failure) {
    work.failure = outcome.failure;
    // Drop the pieces of the failed request that no worker has taken.
    const auto rest = std::find_if(queue_.begin(), queue_.end(), [&](const TransferPiece& left) { return left.work == &work; });
    if (rest != queue_.end()) {
      work.pieces_open -= piece_count(*rest->region, rest->offset, rest->bytes);
      queue_.erase(rest);
    }
  }
  if (--work.pieces_open > 0) return false;
  outcome.piece.region->requests_open -= 1;
  return true;
}

void Requests::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  arrived_.notify_all();
}

}  // namespace nvme
