// Any text as the header of a safetensors file with so many bytes of tensors behind it. What is
// accepted must read back as the same header.
#include <gannet/error.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "files/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gannet::safetensors;
  // The first two bytes say how many bytes of tensors there are: they need not be in the input.
  if (size < 2) return 0;
  uint16_t data_bytes = 0;
  std::memcpy(&data_bytes, data, sizeof(data_bytes));
  const std::string_view json(reinterpret_cast<const char*>(data) + 2, size - 2);
  try {
    const Header header = parse_header(json, data_bytes, "fuzzed.safetensors");
    const std::string once = format_header(header);
    if (format_header(parse_header(once, data_bytes, "fuzzed.safetensors")) != once) std::abort();
  } catch (const gannet::Error&) {
  }
  return 0;
}
