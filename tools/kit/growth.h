// Detects what a function leaves behind in this process when it runs many times: memory, files,
// threads, mappings.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace gannet::kit {

// Runs the body a few times to warm up, then `times` times in each of several blocks. Throws
// CheckFailure if every block shows growth: objects created once, and records of recent calls,
// stop growing. `where`: "1000 objects".
enum class GrowthBlocks {
  kUntilSettled,  // at most 3
  kAll            // always 8: for ranks, which must all do the same
};
void require_no_growth(const std::function<void()>& body, int times, const std::string& where,
                       GrowthBlocks blocks = GrowthBlocks::kUntilSettled);

// Resources that this process holds.
struct HeldResources {
  size_t bytes, files, threads, mappings;
};
HeldResources held();
// Throws CheckFailure if more is held than before, after `times` runs of something.
void require_no_growth_since(const HeldResources& before, size_t times, const std::string& where);

// Re-executes the program, once, with an allocator that counts freed memory as free immediately
// (glibc caches small blocks per thread and counts them as allocated), and that aborts the process
// if the end of a block was overwritten. Call it first in main().
void count_every_block(char** arguments);

size_t entries_in(const char* folder);  // entries in a folder of /proc/self: "task" counts threads, "fd" open files

}  // namespace gannet::kit
