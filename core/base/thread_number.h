// The number of the calling thread: never 0, and never that of another thread, also of one that has ended. std::thread::id is
// given again to the next thread that starts.
#pragma once

#include <cstdint>

namespace gannet {

uint64_t thread_number() noexcept;

}  // namespace gannet
