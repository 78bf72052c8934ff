// Any bytes as a whole file of torch.save, a zip archive or the old format.
#include <gannet/error.h>

#include <cstdint>

#include "files/pt_contents.h"
#include "fuzz/counted_memory.h"
#include "fuzz/walk_objects.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gannet;
  constexpr size_t kMemory = 1 << 20, kMessages = 256 << 10;
  fuzz::count_memory();
  try {
    const files::MemoryBytes bytes({reinterpret_cast<const char*>(data), size}, "fuzzed.pt");
    const files::PtContents contents = files::read_contents(bytes, kMemory);
    fuzz::walk(contents.pickle);
    for (const auto& [key, storage] : contents.pickle.storages) {
      const files::StoragePlace& place = contents.places.at(key);
      fuzz::check(place.offset <= size && place.bytes <= size - place.offset &&
                  place.bytes == static_cast<uint64_t>(storage.bytes()));
    }
  } catch (const Error&) {
  }
  // The old format's two large pickles may take it once each.
  fuzz::expect_at_most(2 * kMemory + 4 * size + kMessages);
  return 0;
}
