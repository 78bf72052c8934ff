// The recorded order of uses, on numbers.
#include "params/trace.h"

#include <gtest/gtest.h>

#include <vector>

namespace {

using gannet::zero::Trace;

const std::vector<int64_t> kNumels = {1, 10, 100, 1000};

void run(Trace& trace, const std::vector<size_t>& uses) {
  trace.begin();
  for (const size_t parameter : uses) trace.use(parameter);
  trace.end();
}

std::vector<size_t> upcoming(const Trace& trace) {
  std::vector<size_t> all;
  for (size_t place = 0, parameter; trace.upcoming(place, &parameter); ++place) all.push_back(parameter);
  return all;
}

TEST(Trace, KnowsNothingWhileItRecords) {
  Trace trace(&kNumels);
  trace.begin();
  EXPECT_TRUE(trace.use(2));
  EXPECT_EQ(upcoming(trace), std::vector<size_t>{});
  EXPECT_EQ(trace.distance_to_next_use(2), Trace::kNever);
}

TEST(Trace, TellsWhatComesAndHowFarAway) {
  Trace trace(&kNumels);
  run(trace, {0, 1, 0, 3, 1});
  trace.begin();
  EXPECT_EQ(upcoming(trace), (std::vector<size_t>{0, 1, 0, 3, 1}));
  trace.use(0);
  EXPECT_EQ(trace.distance_to_next_use(0), 10);  // 1 is between
  trace.use(1);
  EXPECT_EQ(trace.distance_to_next_use(1), 1 + 1000);
  EXPECT_EQ(trace.distance_to_next_use(3), 1);  // not used yet
  trace.use(0);
  EXPECT_EQ(trace.distance_to_next_use(0), Trace::kNever);
  EXPECT_EQ(trace.distance_to_next_use(2), Trace::kNever);
  EXPECT_EQ(upcoming(trace), (std::vector<size_t>{3, 1}));
}

TEST(Trace, GoesOnIntoTheStretchThatFollows) {
  Trace forward(&kNumels), backward(&kNumels);
  forward.set_following(&backward);
  run(forward, {0, 1});
  run(backward, {2, 1, 0});
  forward.begin();
  EXPECT_EQ(upcoming(forward), (std::vector<size_t>{0, 1, 2, 1, 0}));
  forward.use(0);
  EXPECT_EQ(forward.distance_to_next_use(0), 10 + 100 + 10);
  forward.use(1);
  EXPECT_EQ(forward.distance_to_next_use(1), 100);
}

TEST(Trace, RecordsAnewFromWhereTheOrderChanges) {
  Trace trace(&kNumels);
  run(trace, {0, 1, 2});
  trace.begin();
  EXPECT_TRUE(trace.use(0));
  EXPECT_FALSE(trace.use(2));
  EXPECT_EQ(upcoming(trace), std::vector<size_t>{});
  EXPECT_TRUE(trace.use(3));
  trace.begin();
  EXPECT_EQ(upcoming(trace), (std::vector<size_t>{0, 2, 3}));
  for (const size_t parameter : {0, 2, 3}) EXPECT_TRUE(trace.use(parameter));
  EXPECT_FALSE(trace.use(1));  // longer than before is another order too
  trace.begin();
  EXPECT_EQ(upcoming(trace), (std::vector<size_t>{0, 2, 3, 1}));
}

TEST(Trace, AShorterRunKeepsTheLongerOrder) {
  Trace trace(&kNumels);
  run(trace, {0, 1, 2});
  run(trace, {0});
  trace.begin();
  EXPECT_EQ(upcoming(trace), (std::vector<size_t>{0, 1, 2}));
}

}  // namespace
