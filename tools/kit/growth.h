// Detects what a body leaves behind in this process when it is run many times: memory, files,
// threads, mappings.
#pragma once

#include <functional>
#include <string>

namespace gannet::kit {

// Runs the body a few times, then `times` more in each of several blocks, and throws CheckFailure
// if there is growth in every block: objects that are created once, and records of the last calls,
// stop growing. `where`: "1000 objects".
enum class GrowthBlocks {
  kUntilSettled,  // at most 3
  kAll            // always 8: for ranks, which must all do the same
};
void require_no_growth(const std::function<void()>& body, int times, const std::string& where,
                       GrowthBlocks blocks = GrowthBlocks::kUntilSettled);

// Restarts the program, once, with an allocator that counts freed memory as free at once (glibc
// keeps small blocks for the thread that freed them, and counts them as allocated), and that ends
// the process if a block's end was overwritten. Call it first in main().
void count_every_block(char** arguments);

size_t entries_in(const char* folder);  // entries in a folder of /proc/self: "task" counts threads, "fd" open files

}  // namespace gannet::kit
