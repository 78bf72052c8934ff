#include "base/glob.h"

#include <gtest/gtest.h>

namespace gannet {
namespace {

TEST(Glob, AStarTakesAnyCharactersDotsIncludedAndAQuestionMarkOne) {
  EXPECT_TRUE(matches_glob("*.bias", "h.0.attn.bias"));
  EXPECT_TRUE(matches_glob("*bias", "bias")) << "a star takes none, too";
  EXPECT_FALSE(matches_glob("*.bias", "bias"));
  EXPECT_FALSE(matches_glob("*.bias", "h.0.bias2")) << "the whole name";
  EXPECT_TRUE(matches_glob("h.?.ln*", "h.3.ln_1.weight"));
  EXPECT_FALSE(matches_glob("h.?.ln*", "h.13.ln_1.weight"));
  EXPECT_TRUE(matches_glob("*a*b*c", "xaababcbc")) << "the last star returns as far as it must";
  EXPECT_TRUE(matches_glob("*", ""));
  EXPECT_TRUE(matches_glob("a**b", "ab"));
  EXPECT_FALSE(matches_glob("", "a"));
  EXPECT_FALSE(matches_glob("?", ""));
  EXPECT_FALSE(matches_glob("[ab]", "a")) << "brackets are letters";
  EXPECT_TRUE(matches_glob("[ab]", "[ab]"));
}

TEST(Glob, AMisspeltPatternSuggestsOneThatMatches) {
  const std::vector<std::string> names = {"wte.weight", "h.0.attn.weight", "h.0.attn.bias"};
  EXPECT_EQ(nearest_globs("*.biass", names), "; did you mean '*.bias'?");
  EXPECT_EQ(nearest_globs("*wtf*", names), "; did you mean '*wte*'?");
  EXPECT_EQ(nearest_globs("h.0.atn.weight", names), "; did you mean 'h.0.attn.weight'?");
  EXPECT_EQ(nearest_globs("*.embedding_of_positions", names), "");
}

}  // namespace
}  // namespace gannet
