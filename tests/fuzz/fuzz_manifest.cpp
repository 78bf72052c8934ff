// Any text as a checkpoint's manifest, as it comes, and again behind a checksum that is right: without that the search would
// never get past the first line. What is accepted must read back as the same manifest.
#include <gannet/error.h>
#include <xxhash.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "checkpoint/manifest.h"

namespace {

void read(std::string_view text) {
  using namespace gannet::checkpoint;
  try {
    const std::string once = format_manifest(parse_manifest(text, "manifest.json"));
    if (format_manifest(parse_manifest(once, "manifest.json")) != once) std::abort();
  } catch (const gannet::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read(text);
  const size_t line = text.find('\n');
  const std::string rest(line == text.npos ? text : text.substr(line + 1));
  const XXH128_hash_t hash = XXH3_128bits(rest.data(), rest.size());
  read("{\"checksum\": \"xxh3-128:" + gannet::checkpoint::hex(hash.high64) + gannet::checkpoint::hex(hash.low64) + "\",\n" +
       rest);
  return 0;
}
