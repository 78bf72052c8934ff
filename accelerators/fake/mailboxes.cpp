#include "mailboxes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

namespace gannet::accelerators {

using sdk::Failure;

namespace {

constexpr uint64_t kRingBytes = 1 << 18;
constexpr int32_t kAborted = -1;

Failure failure_of(const std::string& doing) { return {GANNET_IO_ERROR, doing + ": " + std::string(std::strerror(errno))}; }

}  // namespace

// A ring buffer with one writer and one reader. The counts only grow; their difference is the fill
// level.
struct Mailboxes::Ring {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) char bytes[kRingBytes];

  uint64_t put(const char* from, uint64_t count) {
    const uint64_t at = written.load(std::memory_order_relaxed);
    const uint64_t room = kRingBytes - (at - read.load(std::memory_order_acquire)), moved = std::min(room, count);
    const uint64_t first = std::min(moved, kRingBytes - at % kRingBytes);
    std::memcpy(bytes + at % kRingBytes, from, first);
    std::memcpy(bytes, from + first, moved - first);
    written.store(at + moved, std::memory_order_release);
    return moved;
  }
  uint64_t take(char* to, uint64_t count) {
    const uint64_t at = read.load(std::memory_order_relaxed);
    const uint64_t held = written.load(std::memory_order_acquire) - at, moved = std::min(held, count);
    const uint64_t first = std::min(moved, kRingBytes - at % kRingBytes);
    std::memcpy(to, bytes + at % kRingBytes, first);
    std::memcpy(to + first, bytes, moved - first);
    read.store(at + moved, std::memory_order_release);
    return moved;
  }
};

// The memory begins with the process id of every rank, 64 bytes each; the rings follow.
std::atomic<int32_t>& Mailboxes::process_of(uint32_t rank) const {
  return *reinterpret_cast<std::atomic<int32_t>*>(memory_ + uint64_t{rank} * 64);
}
Mailboxes::Ring& Mailboxes::ring(uint32_t from, uint32_t to) const {
  return reinterpret_cast<Ring*>(memory_ + uint64_t{size_} * 64)[from * size_ + to];
}

// The memory is an anonymous file owned by rank 0. The other ranks open it through rank 0's
// descriptor, and nothing is left behind however a rank ends.
Mailboxes::Mailboxes(const sdk::Store& store, const std::string& name, uint32_t rank, uint32_t size)
    : rank_(rank), size_(size), bytes_(uint64_t{size} * 64 + uint64_t{size} * size * sizeof(Ring)) {
  if (size == 1) return;
  const std::string key = "fake/" + name;
  int file;
  if (rank == 0) {
    file = memfd_create("gannet-fake", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes_)) != 0) throw failure_of("memory for the fake device's ranks");
    const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file);
    store.set(key + "/memory", path);
  } else {
    const std::string path = store.get(key + "/memory");
    file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) throw failure_of("the fake device's ranks are on one host, and " + path + " cannot be opened");
  }
  void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) throw failure_of("mapping the memory of the fake device's ranks");
  memory_ = static_cast<char*>(mapped);
  process_of(rank).store(getpid());
  if (store.add(key + "/come", 1) == size) store.set(key + "/all", "");
  store.get(key + "/all");
  close(file);
}

Mailboxes::~Mailboxes() {
  if (memory_) munmap(memory_, bytes_);
}

void Mailboxes::abort() {
  if (memory_) process_of(rank_).store(kAborted);
}

void Mailboxes::require_alive(uint32_t peer) const {
  if (process_of(rank_).load() == kAborted) throw Failure(GANNET_PEER_LOST, "a collective was aborted by this rank");
  const int32_t process = process_of(peer).load();
  if (process == kAborted)
    throw Failure(GANNET_PEER_LOST, "rank " + std::to_string(peer) + " of the group aborted its collectives");
  if (kill(process, 0) != 0 && errno == ESRCH)
    throw Failure(GANNET_PEER_LOST, "rank " + std::to_string(peer) + " of the group ended");
}

namespace {

// A message in flight: first its length, from which the receiver detects a mismatch, and then its
// bytes.
template <class Byte>
struct MovingMessage {
  uint32_t peer;
  Byte* bytes;
  uint64_t length;         // the length that this rank expects
  uint64_t announced = 0;  // the length that was transmitted
  uint64_t done = 0;       // bytes transferred so far, of the length prefix and the message together
  bool is_over() const { return done == sizeof(announced) + length; }

  // `move` takes the address to copy to or from and the maximum number of bytes; it copies as many
  // as the ring has room for, or holds, and returns the count.
  template <class Move>
  uint64_t advance(Move&& move) {
    const bool in_head = done < sizeof(announced);
    const uint64_t moved = in_head ? move(reinterpret_cast<Byte*>(&announced) + done, sizeof(announced) - done)
                                   : move(bytes + (done - sizeof(announced)), length - (done - sizeof(announced)));
    done += moved;
    return moved;
  }
};

}  // namespace

void Mailboxes::exchange(const std::vector<OutgoingMessage>& outs, const std::vector<IncomingMessage>& ins) {
  std::vector<MovingMessage<const char>> sent;
  for (const OutgoingMessage& out : outs) sent.push_back({out.to, static_cast<const char*>(out.from), out.bytes, out.bytes});
  std::vector<MovingMessage<char>> received;
  for (const IncomingMessage& in : ins) received.push_back({in.from, static_cast<char*>(in.to), in.bytes});
  for (uint64_t idle = 0;;) {
    bool moves = false;
    uint32_t waits_for = size_;  // size_: waits for no rank
    // Messages with the same peer wait for those before them.
    const auto advance = [&](auto& messages, auto&& move) {
      std::vector<bool> is_busy(size_);
      for (auto& one : messages) {
        if (is_busy[one.peer]) continue;
        while (!one.is_over() && move(one) > 0) moves = true;
        if (!one.is_over()) is_busy[waits_for = one.peer] = true;
      }
    };
    advance(sent, [&](auto& one) {
      return one.advance([&](const char* from, uint64_t most) { return ring(rank_, one.peer).put(from, most); });
    });
    advance(received, [&](auto& one) {
      const uint64_t moved = one.advance([&](char* to, uint64_t most) { return ring(one.peer, rank_).take(to, most); });
      if (one.done == sizeof(one.announced) && one.announced != one.length)
        throw Failure(GANNET_INVALID_ARGUMENT, "rank " + std::to_string(one.peer) + " of the group sends " +
                                                   std::to_string(one.announced) + " bytes where rank " + std::to_string(rank_) +
                                                   " expects " + std::to_string(one.length) +
                                                   ": the ranks call different collectives, or with different counts");
      return moved;
    });
    if (waits_for == size_) return;
    idle = moves ? 0 : idle + 1;
    if (idle < 20) {
      std::this_thread::yield();
    } else {
      if (idle % 64 == 20) require_alive(waits_for);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace gannet::accelerators
