// Offload tiers that break one thing each.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <gannet/sdk_offload.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace {

using namespace gannet::sdk;

// Host memory, copied at once.
struct SoundTier : OffloadBase {
  struct Region {
    std::string name;
    uint64_t bytes;
    std::shared_ptr<char[]> memory;
  };
  struct Work {
    std::thread copying;
  };
  static constexpr std::array<gannet_param_spec, 0> kParams{};
  using OffloadBase::OffloadBase;

  uint64_t alignment_bytes() const { return 1; }
  static std::shared_ptr<char[]> memory_of(uint64_t bytes) {
    // 64: arrays of an update are aligned to it.
    const uint64_t room = bytes + 64;
    if (bytes > uint64_t{1} << 40) throw Failure(GANNET_OUT_OF_MEMORY, "out of memory: " + std::to_string(bytes) + " bytes");
    auto* memory = static_cast<char*>(std::aligned_alloc(64, (room + 63) / 64 * 64));
    if (!memory) throw Failure(GANNET_OUT_OF_MEMORY, "no memory");
    std::memset(memory, 0, room);
    return {memory, [](char* given) { std::free(given); }};
  }
  Region* allocate(uint64_t bytes, const std::string& name) {
    ++regions_;
    return new Region{name, bytes, memory_of(bytes)};
  }
  void release(Region* region) {
    --regions_;
    delete region;
  }
  void* address(Region& region) { return region.memory.get(); }
  Work* read(Region& region, uint64_t offset, void* buffer, uint64_t bytes) {
    std::memcpy(buffer, region.memory.get() + offset, bytes);
    return new Work;
  }
  Work* write(Region& region, uint64_t offset, const void* buffer, uint64_t bytes) {
    std::memcpy(region.memory.get() + offset, buffer, bytes);
    return new Work;
  }
  void wait(Work* work) {
    if (work->copying.joinable()) work->copying.join();
    delete work;
  }
  std::atomic<int64_t> regions_{0};
};

struct OddAlignment : SoundTier {
  using SoundTier::SoundTier;
  uint64_t alignment_bytes() const { return 24; }
};
struct ShortWrites : SoundTier {  // as a write() that is not repeated
  using SoundTier::SoundTier;
  Work* write(Region& region, uint64_t offset, const void* buffer, uint64_t bytes) {
    return SoundTier::write(region, offset, buffer, std::min<uint64_t>(bytes, 4 << 20));
  }
};
struct Dirty : SoundTier {
  using SoundTier::SoundTier;
  Region* allocate(uint64_t bytes, const std::string& name) {
    Region* region = SoundTier::allocate(bytes, name);
    std::memset(region->memory.get(), 0xaa, bytes);
    return region;
  }
};
struct ByName : SoundTier {  // equal names are one place
  using SoundTier::SoundTier;
  Region* allocate(uint64_t bytes, const std::string& name) {
    Region* region = SoundTier::allocate(bytes, name);
    auto& place = places_[name];
    if (!place.second || place.first < bytes) place = {bytes, region->memory};
    region->memory = place.second;
    return region;
  }
  std::map<std::string, std::pair<uint64_t, std::shared_ptr<char[]>>> places_;
};
struct OneAtATime : SoundTier {  // the next request replaces one that was not awaited
  using SoundTier::SoundTier;
  Work* write(Region& region, uint64_t offset, const void* buffer, uint64_t bytes) {
    pending_ = [this, &region, offset, buffer, bytes] { delete SoundTier::write(region, offset, buffer, bytes); };
    return new Work;
  }
  void wait(Work* work) {
    if (auto pending = std::exchange(pending_, nullptr)) pending();
    SoundTier::wait(work);
  }
  std::function<void()> pending_;
};
struct PathNames : SoundTier {  // as a file's
  using SoundTier::SoundTier;
  Region* allocate(uint64_t bytes, const std::string& name) {
    if (name.find('/') != std::string::npos) throw Failure(GANNET_IO_ERROR, "no such folder: " + name);
    return SoundTier::allocate(bytes, name);
  }
};
struct CopiedAddress : SoundTier {
  using SoundTier::SoundTier;
  void* address(Region& region) {
    copy_ = memory_of(region.bytes);
    std::memcpy(copy_.get(), region.memory.get(), region.bytes);
    return copy_.get();
  }
  std::shared_ptr<char[]> copy_;
};
struct SharedPlaces : SoundTier {  // by number, of all objects of the process
  using SoundTier::SoundTier;
  Region* allocate(uint64_t bytes, const std::string& name) {
    static std::array<std::shared_ptr<char[]>, 2>& places = *new std::array{memory_of(64 << 20), memory_of(64 << 20)};
    Region* region = SoundTier::allocate(bytes, name);
    if (name == "same name") region->memory = places[allocated_++ % 2];
    return region;
  }
  uint64_t allocated_ = 0;
};
struct RankPlaces : SoundTier {  // one place for a name of a rank, whichever object asks
  RankPlaces(const gannet_host& host, const Params& params, uint32_t rank) : SoundTier(host, params, rank), rank_(rank) {}
  Region* allocate(uint64_t bytes, const std::string& name) {
    static auto& places = *new std::map<std::string, std::shared_ptr<char[]>>;
    static auto& mutex = *new std::mutex;
    Region* region = SoundTier::allocate(bytes, name);
    const std::lock_guard lock(mutex);
    auto& place = places[std::to_string(rank_) + name + std::to_string(++allocated_ % 2)];
    if (!place) place = memory_of(64 << 20);
    if (name == "same name") region->memory = place;
    return region;
  }
  uint32_t rank_;
  uint64_t allocated_ = 0;
};
struct LateCopies : SoundTier {  // release does not wait for them
  using SoundTier::SoundTier;
  Work* read(Region& region, uint64_t offset, void* buffer, uint64_t bytes) {
    return new Work{std::thread([memory = region.memory, offset, buffer, bytes] {
      std::this_thread::sleep_for(std::chrono::milliseconds(bytes > 1 << 20 ? 200 : 0));
      std::memcpy(buffer, memory.get() + offset, bytes);
    })};
  }
};
struct LeavesFiles : SoundTier {
  static constexpr std::array kParams{text("folder", "\"/tmp\"", nullptr, "folder")};
  LeavesFiles(const gannet_host& host, const Params& params, uint32_t rank)
      : SoundTier(host, params, rank), folder_(params.text("folder")) {}
  Region* allocate(uint64_t bytes, const std::string& name) {
    std::string path = folder_ + "/region-XXXXXX";
    const int file = ::mkstemp(path.data());
    if (file >= 0) ::close(file);
    return SoundTier::allocate(bytes, name);
  }
  const std::string folder_;
};
struct DeafToDrive : SoundTier {  // does not look at what pwrite returns
  using SoundTier::SoundTier;
  static int file() {
    static const int opened = [] {
      char path[] = "/tmp/gannet-deaf-XXXXXX";
      const int made = ::mkstemp(path);
      ::unlink(path);
      return made;
    }();
    return opened;
  }
  Work* write(Region& region, uint64_t offset, const void* buffer, uint64_t bytes) {
    const ssize_t written = ::pwrite(file(), buffer, bytes, 0);
    return SoundTier::write(region, offset, buffer, written < 0 ? 0 : static_cast<uint64_t>(written));
  }
};

#define TIER(type) offload<type>(#type, "1.0", "breaks one thing")

// The SDK's wall checks ranges: without it.
template <class Derived>
constexpr gannet_offload_api kUnchecked = [] {
  gannet_offload_api api = gannet::sdk::detail::kOffloadApi<Derived>;
  api.read = [](void* self, void* region, uint64_t offset, void* buffer, uint64_t bytes, void** work, gannet_error* error) {
    return guarded(error, [&] {
      auto& from = *static_cast<typename Derived::Region*>(region);
      const uint64_t at = std::min(offset, from.bytes);
      *work = static_cast<Derived*>(self)->read(from, at, buffer, buffer ? std::min(bytes, from.bytes - at) : 0);
    });
  };
  return api;
}();
struct Clamps : SoundTier {
  using SoundTier::SoundTier;
};
constexpr gannet_descriptor kClamps = describe(GANNET_KIND_OFFLOAD, GANNET_TIER_STABLE, "Clamps", "", "1.0", "",
                                               "breaks one thing", nullptr, 0, &kUnchecked<Clamps>);

}  // namespace

GANNET_PLUGINS(
    "offload/soundtier offload/oddalignment offload/shortwrites offload/dirty offload/byname offload/oneatatime "
    "offload/pathnames offload/copiedaddress offload/sharedplaces offload/latecopies offload/leavesfiles "
    "offload/deaftodrive offload/clamps offload/rankplaces",
    GANNET_TIER_STABLE, TIER(SoundTier), TIER(OddAlignment), TIER(ShortWrites), TIER(Dirty), TIER(ByName), TIER(OneAtATime),
    TIER(PathNames), TIER(CopiedAddress), TIER(SharedPlaces), TIER(LateCopies), TIER(LeavesFiles), TIER(DeafToDrive), kClamps,
    TIER(RankPlaces))
