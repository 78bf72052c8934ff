#include "kit/growth.h"

#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/format.h"
#include "kit/check.h"
#include "kit/host.h"

namespace gannet::kit {
namespace {

// Describes what has grown in `times` runs of the body; "" if nothing has. Memory counts only if it
// grew by more than 4 bytes per run, less than any object needs, plus 1 KiB for the allocator
// itself.
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

// The path of the C library's allocator with a canary after every block, which free() checks; "" if
// it is missing or a sanitizer, which has its own allocator, is loaded.
std::string checking_allocator(const std::string& preloaded) {
  if (preloaded.find("san.so") != std::string::npos) return "";
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&::malloc_usable_size), &info) == 0 || !info.dli_fname) return "";
  const auto file = std::filesystem::path(info.dli_fname).parent_path() / "libc_malloc_debug.so.0";
  std::error_code failed;
  return std::filesystem::exists(file, failed) ? file.string() : "";
}

void set_appended(const char* variable, const std::string& text) {
  const char* const found = std::getenv(variable);
  ::setenv(variable, (found && *found ? std::string(found) + ":" + text : text).c_str(), 1);
}

}  // namespace

HeldResources held() {
  take_log();
  const auto info = ::mallinfo2();
  std::ifstream maps("/proc/self/maps");
  size_t mappings = 0;
  for (std::string line; std::getline(maps, line);) ++mappings;
  return {info.uordblks + info.hblkhd, entries_in("/proc/self/fd"), entries_in("/proc/self/task"), mappings};
}

void count_every_block(char** arguments) {
  const char* const tunables = std::getenv("GLIBC_TUNABLES");
  const char* const preloaded = std::getenv("LD_PRELOAD");
  if (tunables && std::strstr(tunables, "tcache_count")) return;
  set_appended("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");
  if (const std::string file = checking_allocator(preloaded ? preloaded : ""); !file.empty()) {
    set_appended("GLIBC_TUNABLES", "glibc.malloc.check=3");
    set_appended("LD_PRELOAD", file);
  }
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

void require_no_growth_since(const HeldResources& before, size_t times, const std::string& where) {
  if (const std::string grown = growth_of(before, held(), times); !grown.empty()) throw CheckFailure(grown, where);
}

}  // namespace gannet::kit
