#include "kit/growth.h"

#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/format.h"
#include "kit/check.h"
#include "kit/host.h"

namespace gannet::kit {
namespace {

struct HeldResources {
  size_t bytes, files, threads, mappings;
};

HeldResources held() {
  take_log();
  const auto info = ::mallinfo2();
  std::ifstream maps("/proc/self/maps");
  size_t mappings = 0;
  for (std::string line; std::getline(maps, line);) ++mappings;
  return {info.uordblks + info.hblkhd, entries_in("/proc/self/fd"), entries_in("/proc/self/task"), mappings};
}

// What has grown in `times` runs of the body; "" if nothing has. Memory counts only if it has grown by
// more than 4 bytes per run, less than any object takes, plus 1 KiB for the allocator itself.
std::string growth_of(const HeldResources& before, const HeldResources& now, size_t times) {
  const auto told = [](size_t then, size_t count, const char* what) {
    return formatted("{} {}, and {} before", count, what, then);
  };
  if (now.bytes > before.bytes + 1024 + 4 * times) return told(before.bytes, now.bytes, "bytes are allocated");
  if (now.files > before.files + 2) return told(before.files, now.files, "files are open");
  if (now.threads > before.threads + 1) return told(before.threads, now.threads, "threads run");
  if (now.mappings > before.mappings + times / 10) return told(before.mappings, now.mappings, "mappings are held");
  return "";
}

}  // namespace

void count_every_block(char** arguments) {
  constexpr const char *kVariable = "GLIBC_TUNABLES", *kTunable = "glibc.malloc.tcache_count=0";
  const char* const found = std::getenv(kVariable);
  const std::string before = found ? found : "";
  if (before.find("tcache_count") != std::string::npos) return;
  ::setenv(kVariable, (before.empty() ? std::string(kTunable) : before + ":" + kTunable).c_str(), 1);
  ::execv("/proc/self/exe", arguments);  // if this fails, the counts are less exact
}

size_t entries_in(const char* folder) {
  std::error_code failed;
  size_t count = 0;
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) ++count;
  return count;
}

void require_no_growth(const std::function<void()>& body, int times, const std::string& where, GrowthBlocks blocks) {
  for (int i = 0; i < times / 10; ++i) body();
  held();  // allocates what held() itself needs
  std::string grown;
  bool is_settled = false;
  for (int block = 0; blocks == GrowthBlocks::kAll ? block < 8 : block < 3 && !is_settled; ++block) {
    const HeldResources before = held();
    for (int i = 0; i < times; ++i) body();
    grown = growth_of(before, held(), static_cast<size_t>(times));
    is_settled = is_settled || grown.empty();
  }
  if (!is_settled) throw CheckFailure(grown, where);
}

}  // namespace gannet::kit
