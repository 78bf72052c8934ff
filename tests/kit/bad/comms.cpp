// Comms that break one thing each: the fake device's, which is sound, on the host's memory.
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "comm.h"

namespace {

using namespace gannet;
using accelerators::FakeComm;
using sdk::Collective;
using sdk::Failure;

struct SoundComm : FakeComm {
  using FakeComm::FakeComm;
};

// For works of another type, which hold the fake's as `work`.
template <class Its>
struct OtherWorks : FakeComm {
  using FakeComm::FakeComm;
  using Work = Its;
  void block(Work& work, void* stream) { FakeComm::block(*work.work, stream); }
  std::unique_ptr<Work> start(Group& group, const Collective& c) {
    auto work = std::make_unique<Work>();
    work->work = FakeComm::start(group, c);
    work->collective = c;
    return work;
  }
  std::vector<std::unique_ptr<Work>> start_many(Group& group, const std::vector<Collective>& batch) {
    std::vector<std::unique_ptr<Work>> works;
    for (auto& one : FakeComm::start_many(group, batch)) {
      works.push_back(std::make_unique<Work>());
      works.back()->work = std::move(one);
    }
    return works;
  }
};
struct OtherWork {
  std::unique_ptr<FakeComm::Work> work;  // null: it is over
  Collective collective{};               // of a batch: nothing
  bool wait(uint64_t timeout_ms) { return !work || work->wait(timeout_ms); }
  bool is_over() { return !work || work->is_over(); }
};

// Changes a collective's result when it is waited for.
template <class Late>
struct ThenWork : OtherWork {
  bool wait(uint64_t timeout_ms) {
    const bool is_over = OtherWork::wait(timeout_ms);
    if (is_over) Late::change(collective);
    return is_over;
  }
};
struct LastElement {  // of an odd count
  static void change(const Collective& c) {
    if (c.op == GANNET_ALL_REDUCE && c.count % 2 && c.size > 1 && c.send != c.recv)
      std::memset(static_cast<char*>(c.recv) + (c.count - 1) * c.element_bytes(), 0, c.element_bytes());
  }
};
struct Behind {
  static void change(const Collective& c) {
    if (c.op == GANNET_BROADCAST && c.rank != c.peer) static_cast<char*>(c.recv)[c.bytes()] = 1;
  }
};
struct Input {
  static void change(const Collective& c) {
    if (c.op == GANNET_REDUCE_SCATTER && c.count > 0 && c.send != c.recv)
      std::memset(const_cast<void*>(c.send), 0x3f, c.element_bytes());
  }
};
using DropsLast = OtherWorks<ThenWork<LastElement>>;
using Overruns = OtherWorks<ThenWork<Behind>>;
using ReducesInSend = OtherWorks<ThenWork<Input>>;

struct SilentRefusal : FakeComm {
  using FakeComm::FakeComm;
  std::unique_ptr<Work> start(Group& group, const Collective& c) {
    if (c.op == GANNET_ALL_TO_ALL && c.dtype == GANNET_INT16) throw Failure(GANNET_UNSUPPORTED, "");
    return FakeComm::start(group, c);
  }
};
struct EvenParts : FakeComm {  // knows nothing of counts
  using FakeComm::FakeComm;
  std::unique_ptr<Work> start(Group& group, const Collective& c) {
    Collective even = c;
    if (c.op == GANNET_ALL_GATHER) even.recv_counts = nullptr;
    return FakeComm::start(group, even);
  }
};
struct Serial : FakeComm {  // each member before the next
  using FakeComm::FakeComm;
  std::vector<std::unique_ptr<Work>> start_many(Group& group, const std::vector<Collective>& batch) {
    std::vector<std::unique_ptr<Work>> works;
    for (const Collective& one : batch) {
      works.push_back(FakeComm::start(group, one));
      works.back()->wait(3'600'000);
    }
    return works;
  }
};
struct Reorders : OtherWorks<OtherWork> {  // a message of one element goes behind the next one
  using OtherWorks::OtherWorks;
  std::unique_ptr<Work> start(Group& group, const Collective& c) {
    if (c.op == GANNET_SEND && c.count == 1) {
      held_ = c;
      is_held_ = true;
      return std::make_unique<Work>();
    }
    auto work = OtherWorks::start(group, c);
    if (c.op == GANNET_SEND && std::exchange(is_held_, false)) OtherWorks::start(group, held_)->wait(1'000);
    return work;
  }
  Collective held_{};
  bool is_held_ = false;
};
struct OneGroup : FakeComm {  // one connection for all groups of a size
  using FakeComm::FakeComm;
  std::unique_ptr<Group> make_group(const std::vector<uint32_t>& ranks, uint32_t rank, const std::string&) {
    return FakeComm::make_group(ranks, rank, "all of " + std::to_string(ranks.size()));
  }
};

struct Eager : OtherWork {
  bool is_over() { return true; }
};
struct Impatient : OtherWork {  // a time-out ends the work
  bool is_late = false;
  bool wait(uint64_t timeout_ms) {
    if (is_late) throw Failure(GANNET_INTERNAL, "this work is no more");
    const bool is_over = OtherWork::wait(timeout_ms);
    is_late = !is_over;
    return is_over;
  }
};
struct Hopeful : OtherWork {  // that a dead rank comes back
  bool wait(uint64_t timeout_ms) {
    try {
      return OtherWork::wait(timeout_ms);
    } catch (const Failure&) {
      std::this_thread::sleep_for(std::chrono::hours(1));
      throw;
    }
  }
};
using EagerQuery = OtherWorks<Eager>;
using TimeOutEnds = OtherWorks<Impatient>;
using HangsOnDeath = OtherWorks<Hopeful>;

struct DeafToAbort : FakeComm {
  using FakeComm::FakeComm;
  void abort() {}
};
struct LiesOfSums : FakeComm {
  using FakeComm::FakeComm;
  uint32_t sum_dtype(uint32_t) const { return GANNET_FLOAT32; }
};
struct CountsTwice : FakeComm {
  using FakeComm::FakeComm;
  std::unique_ptr<Work> start(Group& group, const Collective& c) {
    count_calls(1);
    return FakeComm::start(group, c);
  }
};
struct LeaksWorks : FakeComm {
  using FakeComm::FakeComm;
  std::unique_ptr<Work> start(Group& group, const Collective& c) {
    *new std::vector<char>(64) = {1};
    return FakeComm::start(group, c);
  }
};
struct LeaksGroups : FakeComm {
  using FakeComm::FakeComm;
  std::unique_ptr<Group> make_group(const std::vector<uint32_t>& ranks, uint32_t rank, const std::string& name) {
    *new std::vector<char>(256) = {1};
    return FakeComm::make_group(ranks, rank, name);
  }
};

struct SoundMemory : FakeComm {  // sound: with memory of its own, in whole pages
  using FakeComm::FakeComm;
  void* allocate(Group&, uint64_t bytes) {
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw Failure(GANNET_OUT_OF_MEMORY, "no memory for " + std::to_string(bytes) + " bytes");
    const std::lock_guard lock(mutex_);
    allocated_[memory] = bytes;
    return memory;
  }
  void deallocate(Group&, void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = allocated_.find(memory);
    if (found == allocated_.end()) throw Failure(GANNET_INVALID_ARGUMENT, "this memory was not allocated here");
    ::munmap(memory, found->second);
    allocated_.erase(found);
  }
  void register_buffer(Group&, void* buffer, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!buffer || bytes == 0 || !registered_.insert(buffer).second)
      throw Failure(GANNET_INVALID_ARGUMENT, "this buffer cannot be registered");
  }
  void unregister_buffer(Group&, void* buffer) {
    const std::lock_guard lock(mutex_);
    if (registered_.erase(buffer) == 0) throw Failure(GANNET_INVALID_ARGUMENT, "this buffer was not registered");
  }
  std::mutex mutex_;
  std::map<void*, uint64_t> allocated_;
  std::set<void*> registered_;
};

// Written against the table itself: takes structs of this header alone.
constexpr gannet_comm_api kSizeExact = [] {
  gannet_comm_api api = sdk::detail::kCommApi<SoundComm>;
  api.collective = [](void* self, void* group, const gannet_collective_args* args, void** work, gannet_error* error) -> int32_t {
    if (args->struct_size == sizeof(*args)) return sdk::detail::kCommApi<SoundComm>.collective(self, group, args, work, error);
    return sdk::report(error, GANNET_INVALID_ARGUMENT, "another size");
  };
  return api;
}();

#define COMM(type) sdk::comm<type>(#type, "cpu", GANNET_TIER_STABLE, "", "1.0", "breaks one thing")

}  // namespace

GANNET_PLUGINS(
    "comm/soundcomm@cpu comm/dropslast@cpu comm/overruns@cpu comm/reducesinsend@cpu comm/silentrefusal@cpu "
    "comm/evenparts@cpu comm/serial@cpu comm/reorders@cpu comm/onegroup@cpu comm/eagerquery@cpu comm/timeoutends@cpu "
    "comm/hangsondeath@cpu comm/deaftoabort@cpu comm/liesofsums@cpu comm/countstwice@cpu comm/leaksworks@cpu "
    "comm/leaksgroups@cpu comm/sizeexact@cpu comm/soundmemory@cpu",
    GANNET_TIER_STABLE, COMM(SoundComm), COMM(DropsLast), COMM(Overruns), COMM(ReducesInSend), COMM(SilentRefusal),
    COMM(EvenParts), COMM(Serial), COMM(Reorders), COMM(OneGroup), COMM(EagerQuery), COMM(TimeOutEnds), COMM(HangsOnDeath),
    COMM(DeafToAbort), COMM(LiesOfSums), COMM(CountsTwice), COMM(LeaksWorks), COMM(LeaksGroups), COMM(SoundMemory),
    sdk::describe(GANNET_KIND_COMM, GANNET_TIER_STABLE, "SizeExact", "cpu", "1.0", "", "breaks one thing",
                  std::data(SoundComm::kParams), std::size(SoundComm::kParams), &kSizeExact))
