#include "tensor/stream_copy.h"

#include <cstring>

#include "base/parallel.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace gannet {
namespace {

constexpr uint64_t kGrain = 1 << 20;

void copy_past_caches(char* to, const char* from, uint64_t bytes) {
#if defined(__x86_64__)
  constexpr uint64_t kLine = 64;
  const uint64_t head = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  if (bytes > head + kLine) {
    std::memcpy(to, from, head);
    to += head, from += head, bytes -= head;
    for (; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) {
      const auto* source = reinterpret_cast<const __m128i*>(from);
      auto* line = reinterpret_cast<__m128i*>(to);
      const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1), c = _mm_loadu_si128(source + 2),
                    d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(line, a);
      _mm_stream_si128(line + 1, b);
      _mm_stream_si128(line + 2, c);
      _mm_stream_si128(line + 3, d);
    }
    _mm_sfence();  // other threads see the streamed data only after this fence
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace

void stream_copy(void* to, const void* from, uint64_t bytes) {
  char* into = static_cast<char*>(to);
  const char* source = static_cast<const char*>(from);
  parallel_for(0, bytes, kGrain,
               [&](uint64_t begin, uint64_t end) noexcept { copy_past_caches(into + begin, source + begin, end - begin); });
}

}  // namespace gannet
