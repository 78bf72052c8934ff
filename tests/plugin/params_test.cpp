// A config's params against a schema: conversions, checks, and what the errors say.
#include <gmock/gmock.h>

#include "plugin/plugin.h"
#include "support.h"

namespace gannet::plugin {
namespace {

using test::error_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

const Plugin& probe() {
  static Registry& registry = *new Registry({.explicit_paths = {PROBE_PLUGIN}});
  return registry.require(GANNET_KIND_OPTIMIZER, "probe");
}

ParamSet parse(const Dict& params) {
  return parse_params(probe(), params, [](const std::string& member) { return "c.json:1:" + std::to_string(member.size()); });
}

const gannet_param_value& value(const ParamSet& set, const std::string& name) {
  for (uint64_t i = 0; i < set.view().count; ++i)
    if (set.view().values[i].name == name) return set.view().values[i];
  throw std::out_of_range(name);
}

std::string message(const Dict& params) {
  const auto error = error_of([&] { parse(params); });
  EXPECT_EQ(error.code(), ErrorCode::kConfig);
  return error.what();
}

TEST(Params, DefaultsFillWhatIsNotGiven) {
  const auto set = parse({});
  EXPECT_EQ(set.view().count, 10u);
  EXPECT_EQ(value(set, "lr").number, 1e-3);
  EXPECT_EQ(value(set, "lr").is_given, 0u);
  EXPECT_EQ(value(set, "window").integer, 10);
  EXPECT_EQ(value(set, "window").number, 10.0);
  EXPECT_STREQ(value(set, "mode").string, "plain");
  EXPECT_EQ(value(set, "dampening").is_set, 0u);
  EXPECT_EQ(value(set, "free").is_set, 1u);
  EXPECT_EQ(value(set, "free").list_count, 0u);
}

TEST(Params, ListsOfIntegersAndStringsArriveAsSuch) {
  const auto set = parse({{"sizes", List{3, "40"}}, {"layers", List{"first", "last"}}});
  ASSERT_EQ(value(set, "sizes").list_count, 2u);
  EXPECT_EQ(value(set, "sizes").integers[1], 40);
  EXPECT_EQ(value(set, "sizes").list[0], 3.0);
  ASSERT_EQ(value(set, "layers").list_count, 2u);
  EXPECT_STREQ(value(set, "layers").strings[1], "last");
  EXPECT_EQ(value(parse({}), "sizes").integers[1], 2);
  EXPECT_EQ(value(parse({}), "layers").list_count, 0u);
  EXPECT_STREQ(value(parse({{"layers", "all"}}), "layers").strings[0], "all");  // one is a list of one
  EXPECT_THAT(message({{"sizes", List{1}}}), HasSubstr("expected a list of 2 integers >= 1, found [1]"));
  EXPECT_THAT(message({{"sizes", List{1, 2.5}}}), HasSubstr("expected a list of 2 integers"));
  EXPECT_THAT(message({{"sizes", List{0, 2}}}), HasSubstr(">= 1"));
  EXPECT_THAT(message({{"layers", List{"first", "lsat"}}}), HasSubstr("did you mean 'last'"));
  EXPECT_THAT(message({{"layers", List{1}}}), HasSubstr("strings, each one of first, last, all"));
}

TEST(Params, DynamicOnesAreFlattenedInTheOrderOfDeclaration) {
  const auto set = parse({{"betas", List{0.8, 0.95}}, {"lr", 2}});
  EXPECT_THAT(set.dynamic_names(), ElementsAre("lr", "betas[0]", "betas[1]"));
  EXPECT_THAT(set.dynamic_values(), ElementsAre(2, 0.8, 0.95));
}

TEST(Params, ConvertAsTheConfigDoes) {
  const auto set = parse({{"lr", "1e-4"}, {"window", 1e1}, {"nesterov", "no"}, {"eps", 1}, {"dampening", nullptr}, {"free", 3}});
  EXPECT_EQ(value(set, "lr").number, 1e-4);
  EXPECT_EQ(value(set, "window").integer, 10);
  EXPECT_EQ(value(set, "nesterov").integer, 0);
  EXPECT_EQ(value(set, "dampening").is_set, 0u);
  EXPECT_EQ(value(set, "dampening").is_given, 1u);
  EXPECT_EQ(value(set, "free").list[0], 3);
  EXPECT_EQ(value(parse({{"window", "2"}}), "window").integer, 2);
  for (const Value& yes : {Value(true), Value(1), Value("True"), Value("on")})
    EXPECT_EQ(value(parse({{"nesterov", yes}, {"dampening", 0}}), "nesterov").integer, 1);
}

TEST(Params, ACopySharesItsValues) {
  std::optional<ParamSet> first = parse({{"mode", "throw"}, {"free", List{1, 2, 3}}});
  const ParamSet second = *first;
  first.reset();
  EXPECT_STREQ(value(second, "mode").string, "throw");
  EXPECT_EQ(value(second, "free").list[2], 3);
}

TEST(Params, AnUnknownKeyNamesTheNearestAndAll) {
  EXPECT_THAT(message({{"betass", 1}}),
              AllOf(StartsWith("c.json:1:6: optimizer plugin Probe has no parameter 'betass'; did you mean 'betas'?"),
                    HasSubstr("it takes: lr, betas, eps, nesterov, window, mode, dampening, free")));
  EXPECT_NO_THROW(parse({{"_comment", "as in the paper"}, {"x-note", 1}}));
}

TEST(Params, AWrongValueSaysWhatWasExpectedAndFound) {
  EXPECT_THAT(message({{"lr", "fast"}}),
              StartsWith("c.json:1:2: parameter 'lr' of optimizer plugin Probe: expected a number >= 0, found \"fast\""));
  EXPECT_THAT(message({{"lr", nullptr}}), HasSubstr("expected a number, found null"));
  EXPECT_THAT(message({{"lr", true}}), HasSubstr("expected a number >= 0, found true"));
  EXPECT_THAT(message({{"lr", "Infinity"}}), HasSubstr("expected a number >= 0, found \"Infinity\""));
  EXPECT_THAT(message({{"nesterov", 2}}), HasSubstr("expected true or false, found 2"));
  EXPECT_THAT(message({{"window", 5.5}}), HasSubstr("expected an integer >= 1 and <= 100, found 5.5"));
  EXPECT_THAT(message({{"window", 1e300}}), HasSubstr("found 1e+300"));
  EXPECT_THAT(message({{"mode", 1}}), HasSubstr("expected one of plain, throw, fail, late_fail, host, found 1"));
  EXPECT_THAT(message({{"mode", "trow"}}), HasSubstr("found \"trow\"; did you mean 'throw'?"));
  EXPECT_THAT(message({{"lr", Dict{{"a", 1}}}}), HasSubstr("expected a number >= 0, found {\"a\": 1}"));
}

TEST(Params, RangesAreChecked) {
  EXPECT_THAT(message({{"eps", 0}}), HasSubstr("expected a number > 0, found 0"));
  EXPECT_THAT(message({{"window", 0}}), HasSubstr("expected an integer >= 1 and <= 100, found 0"));
  EXPECT_NO_THROW(parse({{"window", 1}}));
  EXPECT_NO_THROW(parse({{"window", 100}}));
  EXPECT_THAT(message({{"betas", List{0.9, 1}}}), HasSubstr("expected a list of 2 numbers >= 0 and < 1, found [0.9, 1]"));
}

TEST(Params, AListOfFixedLengthHasThatLength) {
  EXPECT_THAT(message({{"betas", List{0.9}}}), HasSubstr("expected a list of 2 numbers"));
  EXPECT_THAT(message({{"betas", 0.9}}), HasSubstr("expected a list of 2 numbers"));
}

TEST(Params, ARequiredOneIsAskedFor) {
  Registry registry({.explicit_paths = {PROBE_PLUGIN}});
  const Plugin& halving = registry.require(GANNET_KIND_SCHEDULER, "halving");
  const auto error =
      error_of([&] { parse_params(halving, {}, [](const std::string& member) { return member.empty() ? "c.json:9:3" : ""; }); });
  EXPECT_STREQ(error.what(),
               "c.json:9:3: scheduler plugin Halving needs the parameter 'every' (steps between halvings), which is not given\n"
               "  (add it to \"params\"; it is an integer)");
}

}  // namespace
}  // namespace gannet::plugin
