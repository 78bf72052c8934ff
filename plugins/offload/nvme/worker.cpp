#include "worker.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <gannet/sdk_threads.hpp>
#include <utility>

namespace nvme {
namespace {

// For example "write of 1048576 bytes at offset 3145728 of region 'exp_avg'
// ('/local/nvme/gannet-...-rank0/0-exp_avg')".
std::string describe(const TransferPiece& piece) {
  return std::string(piece.is_write ? "write" : "read") + " of " + std::to_string(piece.bytes) + " bytes at offset " +
         std::to_string(piece.offset) + " of region '" + piece.region->name + "' ('" + piece.region->path + "')";
}

Failure failure_of(const TransferPiece& piece, int code) {
  return system_failure(describe(piece), code, piece.region->nvme_path);
}

Failure short_transfer(const TransferPiece& piece, uint64_t bytes_done) {
  return Failure(GANNET_IO_ERROR,
                 describe(piece) + " ended after " + std::to_string(bytes_done) + " bytes; " +
                     free_text(piece.region->nvme_path) +
                     ": the kernel's log (dmesg) says more of the drive; name another nvme_path if it is failing");
}

Failure mismatch(const TransferPiece& piece, uint64_t found, uint64_t written) {
  char sums[64];
  std::snprintf(sums, sizeof(sums), "%016" PRIx64 ", not %016" PRIx64, found, written);
  return Failure(GANNET_IO_ERROR, describe(piece) + ": what was read is not what was written (checksum " + sums +
                                      "): the drive or this host's memory is faulty; resume from the last checkpoint, with "
                                      "another nvme_path or on another host");
}

uint64_t kernel_number(const char* name) {
  uint64_t number = 0;
  std::ifstream(std::string("/proc/sys/fs/") + name) >> number;
  return number;
}

int set_up(uint32_t depth, io_context_t& context) {
  context = nullptr;
  return -io_setup(static_cast<int>(depth), &context);
}

}  // namespace

Worker::Worker(Requests& requests, const Options& options) : requests_(requests), options_(options), slots_(options.queue_depth) {
  for (Slot& slot : slots_) idle_.push_back(&slot);
  for (auto* list : {&ready_, &unsummed_}) list->reserve(slots_.size());
  events_.resize(slots_.size());
  if (const int code = set_up(options.queue_depth, context_); code == EAGAIN)
    throw Failure(GANNET_UNAVAILABLE, "the kernel has no room for " + std::to_string(options.queue_depth) +
                                          " more asynchronous transfers: fs.aio-nr is " +
                                          std::to_string(kernel_number("aio-nr")) + " of fs.aio-max-nr " +
                                          std::to_string(kernel_number("aio-max-nr")) +
                                          "; raise the latter (sysctl -w fs.aio-max-nr=1048576), or lower aio.queue_depth or "
                                          "aio.intra_op_parallelism");
  else if (code != 0)
    throw Failure(GANNET_UNAVAILABLE,
                  "the kernel gives no asynchronous I/O (io_setup): " + errno_text(code) +
                      "; a container's seccomp profile may forbid it: allow io_setup, io_submit and io_getevents");
}

void Worker::start() {
  const gannet::sdk::BlockSignals blocked;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "gannet-nvme");
    run();
    io_destroy(std::exchange(context_, nullptr));  // takes tens of milliseconds; here the workers do it in parallel
  });
}

Worker::~Worker() {
  if (thread_.joinable()) thread_.join();
  if (context_) io_destroy(context_);
}

void Worker::run() {
  for (;;) {
    fill();
    if (ready_.empty() && finished_.empty() && in_flight_ == 0) return;  // the requests were closed
    submit();
    settle();
    if (in_flight_ > 0) reap();
  }
}

// Takes a piece for each idle slot. Sleeps only if there is nothing else to do.
void Worker::fill() {
  const bool busy = in_flight_ > 0 || !ready_.empty();
  if (idle_.empty() || (busy && !options_.overlap_events)) return;
  taken_.clear();
  requests_.take(idle_.size(), /*may_sleep=*/!busy && finished_.empty(), taken_);
  for (const TransferPiece& piece : taken_) {
    Slot& slot = *idle_.back();
    idle_.pop_back();
    slot.piece = piece;
    slot.bytes_done = 0;
    if (piece.is_write && options_.checksum) {
      piece.region->sums.forget(piece.offset / options_.block_size);  // no checksum until the write has succeeded
      if (piece.region->whole_block(piece.offset, piece.bytes) >= 0) unsummed_.push_back(&slot);
    }
    prepare(slot);
  }
}

void Worker::prepare(Slot& slot) {
  const TransferPiece& piece = slot.piece;
  char* buffer = piece.buffer + slot.bytes_done;
  const uint64_t bytes = piece.bytes - slot.bytes_done;
  const auto offset = static_cast<long long>(piece.offset + slot.bytes_done);
  const int file = piece.region->file.get();
  piece.is_write ? io_prep_pwrite(&slot.control, file, buffer, bytes, offset)
                 : io_prep_pread(&slot.control, file, buffer, bytes, offset);
  slot.control.data = &slot;
  ready_.push_back(&slot);
}

void Worker::submit() {
  constexpr std::chrono::milliseconds kPause{1};
  constexpr int kPauses = 5000;
  batch_.clear();
  for (Slot* slot : ready_) batch_.push_back(&slot->control);
  size_t submitted = 0;
  for (int pauses = 0; submitted < batch_.size();) {
    const size_t count = options_.single_submit ? 1 : batch_.size() - submitted;
    const int accepted = io_submit(context_, static_cast<long>(count), batch_.data() + submitted);
    for (int i = 0; i < accepted; ++i) ready_[submitted++]->in_flight = true;
    in_flight_ += static_cast<size_t>(std::max(accepted, 0));
    if (accepted > 0 || accepted == -EINTR) continue;
    if (accepted == 0 || accepted == -EAGAIN) {  // the kernel queue is full; completing our own transfers makes room
      if (in_flight_ > 0) break;
      if (++pauses <= kPauses) {  // it is full of other processes' transfers
        std::this_thread::sleep_for(kPause);
        continue;
      }
    }
    Slot& refused = *ready_[submitted++];
    complete(refused, failure_of(refused.piece, accepted == 0 ? EAGAIN : -accepted));
  }
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(submitted));
}

// While the drive works, computes and verifies checksums, and reports outcomes to the waiting
// callers.
void Worker::settle() {
  for (Slot* slot : unsummed_) slot->sum = BlockSums::of(slot->piece.buffer, slot->piece.bytes);
  unsummed_.clear();
  if (finished_.empty()) return;
  for (auto& [piece, failure] : finished_) {
    if (piece.is_write || failure) continue;
    const int64_t block = piece.region->whole_block(piece.offset, piece.bytes);
    const uint64_t written = block >= 0 ? piece.region->sums.get(static_cast<uint64_t>(block)) : BlockSums::kNone;
    if (written == BlockSums::kNone) continue;
    if (const uint64_t found = BlockSums::of(piece.buffer, piece.bytes); found != written)
      failure = mismatch(piece, found, written);
  }
  requests_.done(finished_);
  finished_.clear();
}

void Worker::reap() {
  const size_t wanted = options_.overlap_events ? 1 : in_flight_;
  int count;
  do count = io_getevents(context_, static_cast<long>(wanted), static_cast<long>(in_flight_), events_.data(), nullptr);
  while (count == -EINTR);
  if (count < 0) return lose_context(-count);
  in_flight_ -= static_cast<size_t>(count);
  for (int i = 0; i < count; ++i) {
    Slot& slot = *static_cast<Slot*>(events_[i].data);
    slot.in_flight = false;
    advance(slot, static_cast<long>(events_[i].res));
  }
}

void Worker::advance(Slot& slot, long result) {
  if (result < 0) return complete(slot, failure_of(slot.piece, static_cast<int>(-result)));
  const uint64_t done = slot.bytes_done + static_cast<uint64_t>(result);
  if (done == slot.piece.bytes) return complete(slot, std::nullopt);
  // A short transfer resumes at the last aligned byte. A transfer that makes no progress would
  // never end, so it fails.
  const uint64_t resumed = done / kAlignment * kAlignment;
  if (resumed <= slot.bytes_done || done > slot.piece.bytes) return complete(slot, short_transfer(slot.piece, done));
  slot.bytes_done = resumed;
  prepare(slot);
}

void Worker::complete(Slot& slot, std::optional<Failure> failure) {
  const TransferPiece& piece = slot.piece;
  if (piece.is_write && !failure)
    if (const int64_t block = piece.region->whole_block(piece.offset, piece.bytes); block >= 0)
      piece.region->sums.set(static_cast<uint64_t>(block), slot.sum);
  finished_.push_back({piece, std::move(failure)});
  idle_.push_back(&slot);
}

// Called when the kernel fails to report the outcome of the transfers. io_destroy waits until none of
// them accesses its buffer; all of them count as failed.
void Worker::lose_context(int code) {
  io_destroy(context_);
  for (Slot& slot : slots_)
    if (std::exchange(slot.in_flight, false)) complete(slot, failure_of(slot.piece, code));
  in_flight_ = 0;
  set_up(options_.queue_depth, context_);  // if it fails, each submission fails with its own message
}

}  // namespace nvme
