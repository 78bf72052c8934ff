#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <gannet/sdk.hpp>

#include "checker.h"
#include "streams.h"

namespace gannet::accelerators::checked {

namespace {

constexpr uint64_t kGrain = 512;                         // alignment of blocks, as on a GPU
constexpr uint64_t kReturnedBytes = uint64_t{16} << 20;  // freed blocks of at least this size return their pages to the host

uint64_t host_bytes() { return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

[[noreturn]] void fail(const char* doing) {
  throw sdk::Failure(GANNET_UNAVAILABLE,
                     std::string("the checked device's memory: ") + doing + " failed: " + std::strerror(errno));
}

}  // namespace

Memory& Memory::get() {
  static Memory* const memory = new Memory;
  return *memory;
}

Memory::Memory() : limit_(host_bytes()), devices_(kMostDevices) {
  constexpr uint64_t kBytes = kMostDevices * kDeviceBytes;
  const int file = memfd_create("gannet-checked", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(kBytes)) != 0) fail("making it");
  void* const device = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  void* const alias = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (device == MAP_FAILED || alias == MAP_FAILED) fail("mapping it");
  close(file);
  base_ = reinterpret_cast<uint64_t>(device);
  distance_ = reinterpret_cast<uint64_t>(alias) - base_;
  for (uint32_t i = 0; i < kMostDevices; ++i) add_free(devices_[i], base_ + i * kDeviceBytes, kDeviceBytes);
}

void Memory::set_limit(uint64_t bytes_per_device) {
  const std::lock_guard lock(mutex_);
  limit_ = std::min(bytes_per_device ? bytes_per_device : host_bytes(), kDeviceBytes);
}

uint64_t Memory::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

uint64_t Memory::free_bytes(uint32_t device) const {
  const std::lock_guard lock(mutex_);
  return limit_ - std::min(limit_, devices_[device].used);
}

void Memory::add_free(Device& device, uint64_t address, uint64_t bytes) {
  device.free.emplace(address, bytes);
  device.by_bytes.emplace(bytes, address);
}

void Memory::remove_free(Device& device, uint64_t address, uint64_t bytes) {
  device.free.erase(address);
  device.by_bytes.erase({bytes, address});
}

c10::DataPtr Memory::allocate(uint32_t device, uint64_t bytes) {
  const c10::Device torch_device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
  if (bytes == 0) return {nullptr, torch_device};
  const uint64_t taken = (bytes + kGrain - 1) / kGrain * kGrain;
  Actor* const actor = &current_stream(device).actor;
  uint64_t address = 0;
  {
    const std::lock_guard lock(mutex_);
    Device& there = devices_[device];
    const uint64_t left = limit_ - std::min(limit_, there.used);
    const auto best = there.by_bytes.lower_bound({taken, 0});
    TORCH_CHECK_WITH(OutOfMemoryError, taken <= left && best != there.by_bytes.end(), "checked device ", device,
                     " is out of memory: ", bytes, " bytes were asked for, ", left, " of its ", limit_, " bytes are free");
    const auto [free_bytes, free_address] = *best;
    address = free_address;
    remove_free(there, address, free_bytes);
    if (free_bytes > taken) add_free(there, address + taken, free_bytes - taken);
    there.used += taken;
    blocks_.emplace(address, Block{taken, bytes, ++blocks_made_, actor, {}, {}, {}});
  }
  auto& counters = Checker::get().counters();
  ++counters.allocations;
  counters.allocated_bytes += static_cast<int64_t>(taken);
  void* const pointer = reinterpret_cast<void*>(address);
  std::memset(alias(pointer), 0xff, taken);
  return {pointer, pointer, [](void* block) { Memory::get().free(reinterpret_cast<uint64_t>(block)); }, torch_device};
}

void Memory::free(uint64_t address) {
  std::unique_lock lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return;
  const uint64_t bytes = found->second.bytes;
  Actor& actor = *found->second.actor;
  const std::vector<const Actor*> users = found->second.users;
  lock.unlock();  // the report of a race describes the block, and takes the lock for that
  Checker::get().free(actor, address, address + bytes, users);
  lock.lock();
  blocks_.erase(address);
  if (bytes >= kReturnedBytes) madvise(reinterpret_cast<void*>(address + distance_), bytes, MADV_REMOVE);
  Device& device = devices_[(address - base_) / kDeviceBytes];
  device.used -= bytes;
  uint64_t begin = address, length = bytes;
  auto next = device.free.lower_bound(address);
  if (next != device.free.end() && next->first == begin + length) {
    const auto [at, more] = *next;
    remove_free(device, at, more);
    length += more;
  }
  next = device.free.lower_bound(address);
  if (next != device.free.begin()) {
    const auto [at, more] = *std::prev(next);
    if (at + more == begin) {
      remove_free(device, at, more);
      begin = at;
      length += more;
    }
  }
  add_free(device, begin, length);
}

std::map<uint64_t, Memory::Block>::const_iterator Memory::block_at(uint64_t address) const {
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return blocks_.end();
  --next;
  return address < next->first + next->second.bytes ? next : blocks_.end();
}

void Memory::record_use(const void* address, const Actor& actor) {
  const auto at = reinterpret_cast<uint64_t>(address);
  const auto add = [&](std::vector<const Actor*>& users) {
    if (std::find(users.begin(), users.end(), &actor) == users.end()) users.push_back(&actor);
  };
  const std::lock_guard lock(mutex_);
  if (!is_device(address)) {
    if (const auto found = pinned_at(at); found != pinned_.end() && found->second.owner == PinOwner::kLibTorch)
      add(pinned_.at(found->first).users);
    return;
  }
  const auto found = block_at(at);
  if (found == blocks_.end() || &actor == found->second.actor) return;
  add(blocks_.at(found->first).users);
}

Memory::BlockDescription Memory::describe(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  if (!is_device(reinterpret_cast<const void*>(address))) {
    const auto found = pinned_at(address);
    if (found == pinned_.end()) return {address, "host memory"};
    return {found->first, "pinned host memory of " + std::to_string(found->second.bytes) + " bytes"};
  }
  const auto found = block_at(address);
  if (found == blocks_.end()) return {address, "memory of the device that is free"};
  const Block& block = found->second;
  return {found->first, "allocation " + std::to_string(block.number) + " (" + std::to_string(block.asked) + " bytes" +
                            (block.shape.empty() ? "" : ", " + block.shape) +
                            (block.name.empty() ? "" : ", '" + block.name + "'") + ") of checked device " +
                            std::to_string(device_of(reinterpret_cast<const void*>(address)))};
}

void Memory::set_shape(const void* address, const std::string& shape) {
  const std::lock_guard lock(mutex_);
  if (const auto found = blocks_.find(reinterpret_cast<uint64_t>(address)); found != blocks_.end()) found->second.shape = shape;
}

void Memory::set_name(const void* address, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = block_at(reinterpret_cast<uint64_t>(address));
  if (found != blocks_.end() && found->second.name.empty()) blocks_.at(found->first).name = name;
}

// ---- Pinned memory ---------------------------------------------------------------------------------------------------

// Requires that mutex_ is held.
std::map<uint64_t, Memory::PinnedRange>::const_iterator Memory::pinned_at(uint64_t address) const {
  const auto next = pinned_.upper_bound(address);
  if (next == pinned_.begin()) return pinned_.end();
  const auto last = std::prev(next);
  return address < last->first + last->second.bytes ? last : pinned_.end();
}

void Memory::pin(void* address, uint64_t bytes, PinOwner owner) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  if (!address || bytes == 0) throw sdk::Failure(GANNET_INVALID_ARGUMENT, "there is no memory to pin");
  const std::lock_guard lock(mutex_);
  const auto next = pinned_.lower_bound(begin);
  const bool meets_next = next != pinned_.end() && next->first < begin + bytes;
  const bool meets_last = next != pinned_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > begin;
  if (meets_next || meets_last) throw sdk::Failure(GANNET_INVALID_ARGUMENT, "this memory is pinned already, or a part of it is");
  pinned_.emplace(begin, PinnedRange{bytes, owner, {}});
}

void Memory::unpin(void* address) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  PinnedRange memory{};
  {
    const std::lock_guard lock(mutex_);
    const auto found = pinned_.find(begin);
    if (found == pinned_.end()) throw sdk::Failure(GANNET_INVALID_ARGUMENT, "no pinned memory begins at this address");
    memory = found->second;
  }
  Checker::get().free_of_host(begin, begin + memory.bytes, memory.users);  // before the erase, since its report names the memory
  const std::lock_guard lock(mutex_);
  pinned_.erase(begin);
}

bool Memory::is_pinned(const void* address) const {
  const std::lock_guard lock(mutex_);
  return pinned_at(reinterpret_cast<uint64_t>(address)) != pinned_.end();
}

// ---- LibTorch's allocators -------------------------------------------------------------------------------------------

namespace {

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override { return Memory::get().allocate(current_device(), bytes); }
  c10::DeleterFnPtr raw_deleter() const override {
    return [](void* block) { Memory::get().free(reinterpret_cast<uint64_t>(block)); };
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(Memory::get().alias(to), Memory::get().alias(from), bytes);
  }
};

struct PinnedAllocator final : c10::Allocator {
  static void release(void* memory) {
    Memory::get().unpin(memory);
    std::free(memory);
  }
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::DeviceType::CPU};
    void* memory = nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, posix_memalign(&memory, 64, bytes) == 0, "no host memory for ", bytes, " pinned bytes");
    Memory::get().pin(memory, bytes, Memory::PinOwner::kLibTorch);
    return {memory, memory, &release, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

c10::Allocator* device_allocator() {
  static auto* const allocator = new DeviceAllocator;
  return allocator;
}

c10::Allocator* pinned_allocator() {
  static auto* const allocator = new PinnedAllocator;
  return allocator;
}

}  // namespace gannet::accelerators::checked
