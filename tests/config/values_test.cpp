// Conversions, as pydantic's lax mode.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "config/convert.h"
#include "expect_error.h"

namespace gannet::config {
namespace {

Value converted(const char* path, const Value& value) { return convert(*find_key(path), value, "t.json:1:1: /x"); }
bool refuses(const char* path, const Value& value) {
  try {
    converted(path, value);
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_THAT(error.message(), testing::StartsWith("t.json:1:1: /x must be "));
    return true;
  }
}

TEST(Conversion, IntegersTakeWholeNumbersAndTheirText) {
  EXPECT_EQ(converted("train_batch_size", "2"), Value(2));
  EXPECT_EQ(converted("zero_optimization/reduce_bucket_size", 5e8), Value(int64_t{500000000}));
  EXPECT_EQ(converted("fp16/hysteresis", "-3"), Value(-3));
  for (const Value& wrong :
       {Value(5.5), Value("5.5"), Value("two"), Value(""), Value(true), Value(List{}), Value(1e19), Value(std::nan(""))})
    EXPECT_TRUE(refuses("fp16/hysteresis", wrong)) << wrong.to_json();
}

TEST(Conversion, BooleansTakeWordsAndOneAndZero) {
  for (const Value& yes : {Value(true), Value(1), Value(1.0), Value("1"), Value("true"), Value("TRUE"), Value("yes"), Value("Y"),
                           Value("on"), Value("t")})
    EXPECT_EQ(converted("fp16/enabled", yes), Value(true)) << yes.to_json();
  for (const Value& no : {Value(false), Value(0), Value("0"), Value("False"), Value("no"), Value("n"), Value("OFF"), Value("f")})
    EXPECT_EQ(converted("fp16/enabled", no), Value(false)) << no.to_json();
  for (const Value& wrong : {Value(2), Value(0.5), Value("maybe"), Value(""), Value(List{true})})
    EXPECT_TRUE(refuses("fp16/enabled", wrong)) << wrong.to_json();
}

TEST(Conversion, NumbersAreFinite) {
  EXPECT_EQ(converted("gradient_clipping", 1), Value(1.0));
  EXPECT_EQ(converted("gradient_clipping", "0.5"), Value(0.5));
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Value& wrong :
       {Value(infinity), Value(std::nan("")), Value("inf"), Value("nan"), Value("1e999"), Value("1x"), Value(-1.0), Value(false)})
    EXPECT_TRUE(refuses("gradient_clipping", wrong)) << wrong.to_json();
}

TEST(Conversion, AFileIsAPathOrASwitch) {
  EXPECT_EQ(converted("plugins/trusted", true), Value("true"));
  EXPECT_EQ(converted("plugins/trusted", false), Value(""));
  EXPECT_EQ(converted("plugins/trusted", "team.trusted"), Value("team.trusted"));
  for (const Value& wrong : {Value(1), Value(""), Value(List{"team.trusted"}), Value(Dict{})})
    EXPECT_TRUE(refuses("plugins/trusted", wrong)) << wrong.to_json();
}

TEST(Conversion, RangesHoldTheirEnds) {
  EXPECT_EQ(converted("zero_optimization/stage", 3), Value(3));
  EXPECT_TRUE(refuses("zero_optimization/stage", 4));
  EXPECT_TRUE(refuses("zero_optimization/stage", -1));
  EXPECT_TRUE(refuses("gradient_predivide_factor", 0));
  EXPECT_EQ(converted("fp16/initial_scale_power", -2), Value(-2)) << "a negative power is legal";
}

TEST(Conversion, WordsFoldTheirCaseAndChoicesDoNot) {
  EXPECT_EQ(converted("gradient_allreduce_op", "SUM"), Value("sum"));
  EXPECT_EQ(converted("communication_data_type", "BF16"), Value("bf16"));
  EXPECT_TRUE(refuses("communication_data_type", "fp64"));
  EXPECT_TRUE(refuses("gannet/leftover_micro_batches", "Carry"));
}

TEST(Conversion, TypesOfNumbersHaveDeepSpeedsSpellings) {
  for (const char* name : {"fp32", "float32", "float", "torch.float32"})
    EXPECT_EQ(converted("data_types/grad_accum_dtype", name), Value("fp32"));
  for (const char* name : {"fp16", "float16", "half", "torch.float16"})
    EXPECT_EQ(converted("data_types/grad_accum_dtype", name), Value("fp16"));
  for (const char* name : {"bf16", "bfloat16", "torch.bfloat16"})
    EXPECT_EQ(converted("data_types/grad_accum_dtype", name), Value("bf16"));
  EXPECT_TRUE(refuses("data_types/grad_accum_dtype", "FP32"));
}

TEST(Conversion, ASingleStringIsAListOfOne) {
  EXPECT_EQ(converted("plugins/path", "here"), Value(List{"here"}));
  EXPECT_TRUE(refuses("plugins/path", List{1}));
}

}  // namespace
}  // namespace gannet::config
