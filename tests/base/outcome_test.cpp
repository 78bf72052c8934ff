// Results and errors of ranks as texts for one another.
#include "base/outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace gannet::test {
namespace {

using testing::ElementsAre;

TEST(Outcome, AResultKeepsItsBytes) {
  const std::string bytes("\0-3 7 a\xff\n", 9);
  const std::string text = outcome([&] { return bytes; });
  EXPECT_FALSE(error_in(text));
  EXPECT_EQ(result_in(text), bytes);
  EXPECT_EQ(result_in(outcome_of([] {})), "");
}

TEST(Outcome, AnErrorKeepsItsCodeMessageAndNextStep) {
  for (const std::string& message : {std::string("rank 3: 12 of \xff"), std::string(), std::string(100000, ' ')}) {
    const auto found = error_in(outcome_of([&] { throw Error(ErrorCode::kCorrupt, message, "use another one"); }));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->code(), ErrorCode::kCorrupt);
    EXPECT_EQ(found->message(), message);
    EXPECT_EQ(found->next_step(), "use another one");
  }
}

TEST(Outcome, OtherExceptionsAreErrors) {
  EXPECT_EQ(error_in(outcome_of([] { throw std::bad_alloc(); }))->code(), ErrorCode::kOutOfMemory);
  const auto found = error_in(outcome_of([] { throw std::out_of_range("at"); }));
  EXPECT_EQ(found->code(), ErrorCode::kInternal);
  EXPECT_EQ(found->message(), "at");
  EXPECT_EQ(error_in(outcome_of([] { throw 7; }))->code(), ErrorCode::kInternal);
}

TEST(Outcome, TheFirstErrorOfSeveralRanksIsThrownWithItsRank) {
  const std::string good = outcome([] { return std::string("a"); });
  const std::string bad = outcome_of([] { throw Error(ErrorCode::kIo, "no space", "free some"); });
  EXPECT_THAT(results_of({good, good}), ElementsAre("a", "a"));
  try {
    results_of({good, bad, bad});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_EQ(error.message(), "rank 1: no space");
    EXPECT_EQ(error.next_step(), "free some");
  }
  try {
    results_of({bad});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "no space") << "there is one rank";
  }
}

TEST(Outcome, WhatIsNoOutcomeIsADefect) {
  for (const char* text : {"", "a", "-", "-3", "-3 5 ab", "-x 1 a"}) EXPECT_ANY_THROW(error_in(text)) << text;
}

}  // namespace
}  // namespace gannet::test
