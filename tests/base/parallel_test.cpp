// The host's parallel loop: every element once, and what a body throws.
#include "base/parallel.h"

#include <gannet/error.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace gannet {
namespace {

TEST(ParallelFor, VisitsEachElementOnce) {
  std::vector<int> visits(100'001);
  parallel_for(1, visits.size(), 64, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) ++visits[i];
  });
  EXPECT_EQ(visits[0], 0);
  for (size_t i = 1; i < visits.size(); ++i) ASSERT_EQ(visits[i], 1) << i;
}

TEST(ParallelFor, AnErrorThrownInABodyKeepsItsCodeAndItsMessage) {
  std::atomic<uint64_t> done{0};
  try {
    parallel_for(0, 1000, 1, [&](uint64_t begin, uint64_t end) {
      done += end - begin;
      if (end == 1000) throw Error(ErrorCode::kIo, "block 999 failed its checksum", "restore the file");
    });
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_EQ(error.message(), "block 999 failed its checksum");
    EXPECT_EQ(error.next_step(), "restore the file");
  }
  EXPECT_EQ(done, 1000u) << "the other parts are over before the exception leaves the loop";
}

TEST(ParallelFor, OfSeveralExceptionsOneLeavesTheLoop) {
  EXPECT_THROW(parallel_for(0, 1000, 1, [](uint64_t, uint64_t) { throw std::runtime_error("each of them"); }),
               std::runtime_error);
}

}  // namespace
}  // namespace gannet
