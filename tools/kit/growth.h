// What a body leaves behind in this process when it is run many times: memory, files, threads, mappings.
#pragma once

#include <functional>
#include <string>

namespace gannet::kit {

// Runs it some times, then `times` more in each of some blocks, and throws Failed where something has grown in every block: what
// is made once, and a record of the last calls, end to grow. `where`: "1000 objects".
enum class Blocks {
  kUntilSettled,  // at most 3
  kAll            // 8, whatever is found: for ranks, which must do the same
};
void require_no_growth(const std::function<void()>& body, int times, const std::string& where,
                       Blocks blocks = Blocks::kUntilSettled);

// Starts the program anew, once, with an allocator that counts what is freed as free at once: glibc keeps small blocks for the
// thread that freed them, and counts them as allocated. To be called first in main().
void count_every_block(char** arguments);

size_t entries_in(const char* folder);  // of /proc/self: "task" are threads, "fd" open files

}  // namespace gannet::kit
