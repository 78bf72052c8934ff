// Flat buffers: all parameters, gradients or one kind of state of a group, one after another in one allocation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace gannet {

// Where tensors of these sizes lie in a flat buffer: each begins at a multiple of kSegmentAlignment elements (a cache line
// of the smallest dtype), the gaps are padding that stays zero.
struct FlatLayout {
  static constexpr int64_t kSegmentAlignment = 32;  // elements
  std::vector<int64_t> offsets;  // [tensors]
  int64_t numel = 0;             // padding included
};
FlatLayout lay_out(const std::vector<int64_t>& numels);

// A zeroed flat buffer. On the CPU it starts on a page of 4 KiB, at a distance from earlier ones that is no power of two:
// buffers walked together at such distances fall on the same cache sets (4K aliasing; DESIGN 2.4), and it asks for huge pages.
at::Tensor allocate_flat(int64_t numel, at::ScalarType dtype, at::Device device);

}  // namespace gannet
