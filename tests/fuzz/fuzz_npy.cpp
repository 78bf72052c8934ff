// Any text as the header of numpy's format: sizes whose product fits, or one gannet::Error.
#include <gannet/error.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "files/npy_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto header = gannet::files::parse_npy_header(std::string(reinterpret_cast<const char*>(data), size), "fuzzed.npy");
    uint64_t bytes = c10::elementSize(header.dtype);
    for (const int64_t one : header.shape)
      if (one < 0 || (one > 0 && __builtin_mul_overflow(bytes, static_cast<uint64_t>(one), &bytes))) std::abort();
  } catch (const gannet::Error&) {
  }
  return 0;
}
