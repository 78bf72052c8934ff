// Any text as a config: parsed, checked, resolved for two ranks, or one gannet::Error.
#include <gannet/error.h>

#include <cstdint>
#include <string>

#include "config/document.h"
#include "config/resolve.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto document =
        gannet::config::Document::from_text(std::string(reinterpret_cast<const char*>(data), size), "fuzzed.json");
    gannet::config::resolve(*document, 2);
  } catch (const gannet::Error&) {
  }
  return 0;
}
