// Characters of untrusted text that may be shown on a terminal.
#include "base/text.h"

#include <gtest/gtest.h>

namespace gannet {
namespace {

TEST(Printable, LeavesWordsOfAllLanguagesAsTheyAre) {
  for (const char* text : {"", "Adam 1.0", "Größe ≤ 3 °C", "学習率", "🙂"}) EXPECT_EQ(printable(text), text);
}

TEST(Printable, MakesControlCharactersVisible) {
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable(std::string("\0\r\x7f", 3)), "\\x00\\x0d\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b"
            "31m")
      << "the terminal's other way to begin a sequence";
  EXPECT_EQ(printable("\xe2\x80\xaeos.nalp"), "\\xe2\\x80\\xaeos.nalp") << "right to left";
}

TEST(Printable, KeepsLineBreaksOfAMessageOnly) {
  EXPECT_EQ(printable("one\n\ttwo", Lines::kMany), "one\n\ttwo");
  EXPECT_EQ(printable("one\n\ttwo"), "one\\x0a\\x09two");
  EXPECT_EQ(printable("one\rtwo", Lines::kMany), "one\\x0dtwo");
}

TEST(Printable, MakesBytesVisibleThatAreNoText) {
  EXPECT_EQ(printable("\xff\xc3(\xe2\x82"), "\\xff\\xc3(\\xe2\\x82");
  // An escape character in three bytes, half of a pair, beyond the last code point.
  EXPECT_EQ(printable("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");
  EXPECT_EQ(printable("\xf0\x80\x80\x9b"), "\\xf0\\x80\\x80\\x9b");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\xf4\x8f\xbf\xbd"), "\xf4\x8f\xbf\xbd");
  EXPECT_EQ(printable("\xc0\x80"), "\\xc0\\x80") << "a zero written longer than it is";
}

TEST(DidYouMean, WordsOfANameLeadToItBeforeLettersThatAreNear) {
  EXPECT_EQ(did_you_mean("warmup_steps", {"warmup_type", "warmup_num_steps"}), "; did you mean 'warmup_num_steps'?");
  EXPECT_EQ(did_you_mean("bucket_size", {"buffer_size", "reduce_bucket_size", "allgather_bucket_size"}),
            "; did you mean 'reduce_bucket_size' or 'allgather_bucket_size'?");
  EXPECT_EQ(did_you_mean("train_batch", {"train_micro_batch_size", "train_batch_size"}), "; did you mean 'train_batch_size'?");
  EXPECT_EQ(did_you_mean("size_bucket", {"reduce_bucket_size"}), "") << "in their order";
  EXPECT_EQ(did_you_mean("bucket", {"reduce_bucket_size"}), "") << "one word says too little";
}

}  // namespace
}  // namespace gannet
