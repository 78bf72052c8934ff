// Any bytes as a pickle, which may take a megabyte of memory.
#include <gannet/error.h>

#include <cstdint>

#include "files/pickle.h"
#include "fuzz/counted_memory.h"
#include "fuzz/walk_objects.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gannet;
  constexpr size_t kMemory = 1 << 20, kMessages = 256 << 10;
  fuzz::count_memory();
  try {
    const files::MemoryBytes bytes({reinterpret_cast<const char*>(data), size}, "fuzzed.pt");
    files::Cursor cursor(bytes, 0, size);
    fuzz::walk(files::unpickle(cursor, {.memory_bytes = kMemory}));
  } catch (const Error&) {
  }
  fuzz::expect_at_most(kMemory + 4 * size + kMessages);
  return 0;
}
