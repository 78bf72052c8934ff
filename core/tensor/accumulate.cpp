#include "tensor/accumulate.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstring>

#include "base/parallel.h"

namespace gannet {
namespace {

constexpr int64_t kShort = 1024;             // elements: up to this size, a plain loop ends before LibTorch's would begin
constexpr uint64_t kGrainBytes = 256 << 10;  // the smallest part of a long copy for one thread

// Uses the host's parallel loop only if there is enough work for several threads; for less, the
// call costs more than it saves.
template <class Body>
void in_parallel(int64_t numel, size_t element_bytes, const Body& body) {
  const uint64_t grain = kGrainBytes / element_bytes;
  if (static_cast<uint64_t>(numel) <= grain) return body(uint64_t{0}, static_cast<uint64_t>(numel));
  parallel_for(uint64_t{0}, static_cast<uint64_t>(numel), grain, body);
}

template <class Into, class From>
void add(void* into, const void* from, int64_t numel) {
  auto* const to = static_cast<Into*>(into);
  const auto* const values = static_cast<const From*>(from);
  for (int64_t i = 0; i < numel; ++i) to[i] = to[i] + static_cast<Into>(values[i]);
}

template <class From>
void widen(void* into, const void* from, int64_t numel) {
  auto* const to = static_cast<float*>(into);
  const auto* const values = static_cast<const From*>(from);
  in_parallel(numel, sizeof(float), [=](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) to[i] = static_cast<float>(values[i]);
  });
}

}  // namespace

bool accumulate(void* into, at::ScalarType into_dtype, const void* from, at::ScalarType from_dtype, int64_t numel, bool adds) {
  const bool is_same = into_dtype == from_dtype,
             is_wider = into_dtype == at::kFloat && (from_dtype == at::kBFloat16 || from_dtype == at::kHalf);
  if (!is_same && !is_wider) return false;
  if (adds) {
    if (numel > kShort) return false;
    switch (from_dtype) {
      case at::kFloat:
        add<float, float>(into, from, numel);
        return true;
      case at::kDouble:
        add<double, double>(into, from, numel);
        return true;
      case at::kBFloat16:
        is_same ? add<c10::BFloat16, c10::BFloat16>(into, from, numel) : add<float, c10::BFloat16>(into, from, numel);
        return true;
      case at::kHalf:
        is_same ? add<c10::Half, c10::Half>(into, from, numel) : add<float, c10::Half>(into, from, numel);
        return true;
      default:
        return false;
    }
  }
  if (is_same) {
    const size_t size = c10::elementSize(into_dtype);
    in_parallel(numel, size, [=](uint64_t begin, uint64_t end) {
      std::memcpy(static_cast<char*>(into) + begin * size, static_cast<const char*>(from) + begin * size, (end - begin) * size);
    });
  } else {
    from_dtype == at::kBFloat16 ? widen<c10::BFloat16>(into, from, numel) : widen<c10::Half>(into, from, numel);
  }
  return true;
}

}  // namespace gannet
