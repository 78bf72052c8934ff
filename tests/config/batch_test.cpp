// The table of reference section 2, and the sentences where nothing fits.
#include "config/batch.h"

#include <gmock/gmock.h>

#include "expect_error.h"

namespace gannet::config {
namespace {

using testing::HasSubstr;

struct Row {
  GivenBatch given;
  int64_t world_size;
  Batch expected;
};

TEST(BatchTriad, CompletesWhatIsNotGiven) {
  const Row rows[] = {
      {{32, 4, 4}, 2, {32, 4, 4}}, {{32, 4, {}}, 2, {32, 4, 4}},  {{32, 4, {}}, 8, {32, 4, 1}}, {{32, {}, 4}, 2, {32, 4, 4}},
      {{{}, 4, 4}, 2, {32, 4, 4}}, {{32, {}, {}}, 4, {32, 8, 1}}, {{{}, 4, {}}, 4, {16, 4, 1}}, {{1, {}, {}}, 1, {1, 1, 1}},
  };
  for (const Row& row : rows) {
    const Batch batch = complete_batch(row.given, row.world_size);
    EXPECT_EQ(batch.train, row.expected.train);
    EXPECT_EQ(batch.micro, row.expected.micro);
    EXPECT_EQ(batch.accumulation, row.expected.accumulation);
  }
}

TEST(BatchTriad, EveryTripleItAcceptsMultipliesOut) {
  for (int64_t world = 1; world <= 4; ++world)
    for (int64_t train = 1; train <= 24; ++train)
      for (int64_t micro = 0; micro <= 5; ++micro)
        for (int64_t accumulation = 0; accumulation <= 5; ++accumulation) {
          const GivenBatch given{train, micro ? std::optional(micro) : std::nullopt,
                                 accumulation ? std::optional(accumulation) : std::nullopt};
          // DeepSpeed's computation by floor divisions; it accepts the result if the product is
          // right.
          const int64_t g = accumulation ? accumulation : micro ? train / micro / world : 1;
          const int64_t m = micro ? micro : train / world / g;
          const bool is_legal = g > 0 && m > 0 && m * g * world == train;
          try {
            const Batch batch = complete_batch(given, world);
            EXPECT_TRUE(is_legal);
            EXPECT_EQ(batch.micro * batch.accumulation * world, train);
            EXPECT_EQ(batch.micro, m);
          } catch (const Error&) {
            EXPECT_FALSE(is_legal) << train << ' ' << micro << ' ' << accumulation << ' ' << world;
          }
        }
}

TEST(BatchTriad, NeedsOneOfTheTwoSizes) {
  for (const GivenBatch given : {GivenBatch{}, GivenBatch{{}, {}, 4}}) {
    const Error error = error_of([&] { complete_batch(given, 2); });
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_THAT(error.message(), HasSubstr("neither train_batch_size nor train_micro_batch_size_per_gpu"));
  }
}

TEST(BatchTriad, AMismatchShowsTheNumbers) {
  const Error error = error_of([] { complete_batch({32, 4, 3}, 2, "ds.json:2:3: "); });
  EXPECT_EQ(error.message(),
            "ds.json:2:3: train_batch_size 32 is not train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps 3 x world "
            "size 2 = 24");
}

TEST(BatchTriad, TooSmallAndNotDivisibleAreToldApart) {
  EXPECT_THAT(error_of([] { complete_batch({4, 4, {}}, 2); }).message(),
              HasSubstr("train_batch_size 4 is less than train_micro_batch_size_per_gpu 4 x world size 2 = 8"));
  const Error error = error_of([] { complete_batch({10, {}, {}}, 4); });
  EXPECT_EQ(error.message(), "train_batch_size 10 is not a multiple of world size 4");
  EXPECT_EQ(error.next_step(), "the nearest that fit are 8 and 12");
}

TEST(BatchTriad, SaysThatRankIsNotSetWhereThatIsWhy) {
  const GivenBatch given{32, 4, 4};
  EXPECT_EQ(error_of([&] { complete_batch(given, 1, "", /*rank_is_set=*/false); }).next_step(),
            "world size is 1 because RANK is not set: start with `gannet run --num_procs 2`");
  EXPECT_THAT(error_of([&] { complete_batch(given, 1, "", /*rank_is_set=*/true); }).next_step(),
              HasSubstr("they fit world size 2"));
  // More processes cannot mend a batch that is too small.
  EXPECT_THAT(error_of([] { complete_batch({4, 4, 4}, 1, "", false); }).next_step(), testing::Not(HasSubstr("RANK")));
}

TEST(BatchTriad, RefusesProductsThatOverflow) {
  const int64_t large = int64_t{1} << 40;
  EXPECT_THAT(error_of([&] { complete_batch({{}, large, large}, 2); }).message(), HasSubstr("more than an integer holds"));
  EXPECT_EQ(error_of([&] { complete_batch({32, large, large}, 2); }).code(), ErrorCode::kConfig);
}

TEST(BatchTriad, TellsTheWorldSizeThatAllThreeImply) {
  EXPECT_EQ(implied_world_size({32, 4, 4}), 2);
  EXPECT_EQ(implied_world_size({32, 4, {}}), 1);
  EXPECT_EQ(implied_world_size({32, 4, 3}), 1);
}

}  // namespace
}  // namespace gannet::config
