// Returns a unique number for the calling thread: never 0, and never reused after a thread has
// ended. std::thread::id, in contrast, is reused by later threads.
#pragma once

#include <cstdint>

namespace gannet {

uint64_t thread_number() noexcept;

}  // namespace gannet
