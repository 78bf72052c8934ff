#include "tensor/stream_copy.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace gannet {
namespace {

// Every alignment of both ends, and nothing before or behind what is copied.
TEST(StreamCopy, CopiesEveryByteAndNoOther) {
  std::vector<unsigned char> from(3'000'000);
  std::iota(from.begin(), from.end(), 0);
  for (const uint64_t bytes : {0u, 1u, 63u, 64u, 65u, 128u, 1000u, 2'500'001u})
    for (const uint64_t to_offset : {0u, 1u, 16u, 63u})
      for (const uint64_t from_offset : {0u, 1u, 17u}) {
        std::vector<unsigned char> to(3'000'000, 7);
        stream_copy(to.data() + to_offset, from.data() + from_offset, bytes);
        std::vector<unsigned char> expected(3'000'000, 7);
        std::copy_n(from.begin() + from_offset, bytes, expected.begin() + to_offset);
        ASSERT_TRUE(to == expected) << bytes << " bytes from " << from_offset << " to " << to_offset;
      }
}

}  // namespace
}  // namespace gannet
