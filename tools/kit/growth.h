// What a body leaves behind in this process when it is run many times: memory, files, threads, mappings.
#pragma once

#include <functional>
#include <string>

namespace gannet::kit {

// Runs it some times, then `times` more, and throws Failed where something has grown over the latter. `where`: "1000 objects".
// `blocks`: so often, and only where it has grown in each of them; for what keeps a record of its last calls.
void require_no_growth(const std::function<void()>& body, int times, const std::string& where, int blocks = 1);

// Starts the program anew, once, with an allocator that counts what is freed as free at once: glibc keeps small blocks for the
// thread that freed them, and counts them as allocated. To be called first in main().
void count_every_block(char** arguments);

size_t entries_in(const char* folder);  // of /proc/self: "task" are threads, "fd" open files

}  // namespace gannet::kit
