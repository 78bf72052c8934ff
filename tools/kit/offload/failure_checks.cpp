// Checks of what a tier refuses, how it fails, and what it leaves behind.
#include <sys/resource.h>

#include <csignal>
#include <cstring>

#include "base/format.h"
#include "kit/growth.h"
#include "kit/host.h"
#include "kit/offload/checks.h"
#include "kit/offload/tier.h"
#include "kit/process_check.h"

namespace gannet::kit {
namespace {

// Limits files to `bytes`; to the process this looks like a full drive.
class FileLimit {
 public:
  explicit FileLimit(uint64_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);  // otherwise it ends the process before a call can fail
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileLimit(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

void require_working(Tier& tier, const std::string& when) {
  set_config(when);
  const GuardedBytes bytes = tier.bytes(tier.rounded(5000), 3);
  void* region = tier.allocate(bytes.size(), "small");
  tier.write(region, 0, bytes);
  require_same(tier.read(region, 0, bytes.size()), bytes, when);
  tier.release(region);
}

}  // namespace

void fail_offload(Subject& subject) { refuse_ranges(subject); }

void refuse_ranges(Subject& subject) {
  Tier tier(subject, 0);
  const uint64_t a = tier.alignment(), region_bytes = tier.rounded(64 * 1024);
  const GuardedBytes whole = tier.bytes(region_bytes, 1), other = tier.bytes(2 * region_bytes, 2);
  void* region = tier.allocate(region_bytes, "ranges");
  tier.write(region, 0, whole);
  struct WrongRange {
    const char* what;
    uint64_t offset, bytes, shift;  // shift: added to the buffer's address
    bool is_null;
  };
  std::vector<WrongRange> wrong = {{"a range that ends after the region", region_bytes - a, 2 * a, 0, false},
                                   {"a range after the region", region_bytes + a, a, 0, false},
                                   {"a range as long as two regions", 0, 2 * region_bytes, 0, false},
                                   {"an offset near 2^64", UINT64_MAX - a + 1, 2 * a, 0, false},
                                   {"a null buffer", 0, a, 0, true}};
  if (a > 1) {
    wrong.push_back({"an offset that is not aligned", a / 2, a, 0, false});
    wrong.push_back({"a size that is not aligned", 0, a + a / 2, 0, false});
    wrong.push_back({"a buffer that is not aligned", 0, a, a / 2, false});
  }
  for (const WrongRange& range : wrong)
    for (const bool writes : {false, true}) {
      set_config(formatted("{} of {}", writes ? "a write" : "a read", range.what));
      void* work = nullptr;
      char* buffer = range.is_null ? nullptr : other.data() + range.shift;
      const CallOutcome outcome = writes ? tier.try_write(region, range.offset, buffer, range.bytes, &work)
                                         : tier.try_read(region, range.offset, buffer, range.bytes, &work);
      if (outcome.ok()) throw CheckFailure(formatted("{} is accepted", range.what), text_of(place()));
      if (outcome.status != GANNET_INVALID_ARGUMENT)
        throw CheckFailure(formatted("{} is answered with status {}: {}", range.what, outcome.status, outcome.message),
                           text_of(place()), "GANNET_INVALID_ARGUMENT: it is the caller's mistake");
    }
  set_config("after refused reads and writes");
  require_same(tier.read(region, 0, region_bytes), whole, "the region");
  require_same(other, tier.bytes(other.size(), 2), "the buffer");
}

void fail_with_a_sentence(Subject& subject) {
  Tier tier(subject, 0);
  for (const uint64_t bytes : {uint64_t{1} << 60, UINT64_MAX, UINT64_MAX - 4095}) {
    set_config("more than any machine has");
    void* region = nullptr;
    if (tier.try_allocate(bytes, "endless", &region).ok())
      throw CheckFailure(formatted("it allocated a region of {} bytes", bytes), text_of(place()),
                         "GANNET_OUT_OF_MEMORY, or another code");
  }
  require_working(tier, "after a region that was refused");
  {
    // The limit does not affect a tier that writes no files. A tier that does must report the lack
    // of space in whichever call detects it.
    constexpr uint64_t kRoom = 64 << 10;
    set_config("files may have 64 KiB, the region has 1 MiB");
    const GuardedBytes bytes = tier.bytes(tier.rounded(1 << 20), 5);
    void* region = nullptr;
    void* work = nullptr;
    {
      const FileLimit limit(kRoom);
      if (tier.try_allocate(bytes.size(), "no room", &region).ok() &&
          tier.try_write(region, 0, bytes.data(), bytes.size(), &work).ok() && tier.try_wait(work).ok())
        require_same(tier.read(region, 0, bytes.size()), bytes, "a write that was said to have succeeded");
    }
    if (region) tier.release(region);
  }
  require_working(tier, "when there is room again");
}

void survive_host_failures(Subject& subject) {
  uint64_t asked = 0;
  for (const auto service : {FailingHost::Service::kAllocate, FailingHost::Service::kParallelFor}) {
    const char* what = service == FailingHost::Service::kAllocate ? "the host's allocate fails" : "the host's parallel_for fails";
    const FailingHost failing(service);
    set_config(what);
    const plugin::ParamSet params = subject.parsed();
    const auto& api = *interfaces::api_of<gannet_offload_api>(*subject.plugin);
    void* self = nullptr;
    const CallOutcome made = call("create", *subject.plugin, api.create, failing.table(), &params.view(), uint32_t{0}, &self);
    require_explained("create", made);
    asked += failing.failures();
    if (!made.ok()) continue;
    api.destroy(self);
    Tier tier(subject, 0, failing.table());
    const GuardedBytes bytes = tier.bytes(tier.rounded(9 << 20), 1);
    void* region = nullptr;
    void* work = nullptr;
    if (tier.try_allocate(bytes.size(), "region", &region).ok()) {
      if (tier.try_write(region, 0, bytes.data(), bytes.size(), &work).ok() && tier.try_wait(work).ok()) {
        const GuardedBytes found = tier.bytes(bytes.size(), 9);
        if (tier.try_read(region, 0, found.data(), found.size(), &work).ok() && tier.try_wait(work).ok())
          require_same(found, bytes, "a read and a write that were said to have succeeded");
      }
      tier.release(region);
    }
    asked += failing.failures();
  }
  if (asked == 0) throw SkippedCheck("it uses neither the host's memory nor its threads");
}

void release_in_flight(Subject& subject) {
  for (const bool reads : {false, true}) {
    set_config(formatted("a region is released with a {} in flight", reads ? "read" : "write"));
    Tier tier(subject, 0);
    GuardedBytes bytes = tier.bytes(tier.rounded(24 << 20), 3), small = tier.bytes(tier.rounded(4096), 4);
    void* region = tier.allocate(bytes.size(), "released");
    void* kept = tier.allocate(bytes.size(), "kept");
    tier.write(region, 0, bytes);
    void* work = reads ? tier.start_read(region, 0, bytes) : tier.start_write(region, 0, bytes);
    tier.release(region);
    bytes.fill(5);  // the memory belongs to the host again
    tier.wait(work);
    require_same(bytes, tier.bytes(bytes.size(), 5), "the buffer of a work whose region is released");
    tier.write(kept, 0, small);
    require_same(tier.read(kept, 0, small.size()), small, "a region beside it");
    set_config(formatted("destroy with a {} in flight", reads ? "read" : "write"));
    if (reads)
      tier.start_read(kept, 0, bytes);
    else
      tier.start_write(kept, 0, bytes);
    tier.destroy();
    bytes.fill(6);
    require_same(bytes, tier.bytes(bytes.size(), 6), "the buffer of a work whose object is destroyed");
  }
}

void leave_no_region(Subject& subject) {
  const auto before = files_of(subject);
  {
    Tier tier(subject, 0);
    const auto use = [&](uint64_t bytes) {
      void* region = tier.allocate(bytes, "again");
      const GuardedBytes data = tier.bytes(tier.rounded(bytes), bytes);
      tier.write(region, 0, data);
      tier.wait(tier.start_read(region, 0, data));
      tier.release(region);
    };
    use(1);
    const size_t files = files_of(subject).size();
    require_no_growth([&] { use(10'000); }, 200, "200 regions allocated, written, read and released");
    if (const size_t now = files_of(subject).size(); now > files)
      throw CheckFailure(formatted("{} files are left by 200 regions that were released", now - files), "release", "none");
    tier.allocate(5000, "not released");
  }
  if (const auto now = files_of(subject); now.size() > before.size())
    throw CheckFailure(formatted("{} files are left behind, '{}' among them", now.size() - before.size(), now.back()), "destroy",
                       "destroy removes all files, also those of regions that were not released");
}

}  // namespace gannet::kit
