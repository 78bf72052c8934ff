// Sections of a program's own: checked, read, resolved and merged as Gannet's.
#include <gannet/config_section.h>
#include <gmock/gmock.h>

#include "expect_error.h"

namespace gannet {
namespace {

using testing::HasSubstr;

ConfigSection corpus() {
  return ConfigSection("corpus", {{.name = "path", .type = "string", .doc = "folder of the samples"},
                                  {.name = "mix", .type = "number", .fallback = 0.5, .range = "0..1", .doc = "of the second"},
                                  {.name = "cache", .type = "size", .fallback = "1GiB"},
                                  {.name = "filter.language", .type = "choice", .fallback = "en", .range = "en|de"},
                                  {.name = "filter.words", .type = "strings", .fallback = List{}}});
}

std::string refusal(const std::string& members) {
  return error_of([&] { read_config(R"({"train_batch_size": 8, "corpus": {)" + members + "}}", {corpus()}); }).what();
}

TEST(OwnSections, AreReadWithTypesOriginsAndDefaults) {
  const Config config = read_config(R"({"train_batch_size": 8,
    "corpus": {"path": "data", "cache": "2GiB", "_note": 1, "filter": {"words": "one", "language": "de"}}})",
                                    {corpus()});
  EXPECT_EQ(config.get("corpus.path").value, Value("data"));
  EXPECT_EQ(config.get("corpus.path").origin, "config text:2:16");
  EXPECT_EQ(config.get("corpus.cache").value, Value(int64_t{2} << 30));
  EXPECT_EQ(config.get("corpus.mix").value, Value(0.5));
  EXPECT_EQ(config.get("corpus.mix").type, "number");
  EXPECT_EQ(config.get("corpus.mix").origin, "default");
  EXPECT_EQ(config.get("corpus/filter/words").value, Value(List{"one"}));
  EXPECT_EQ(config.get("corpus.filter.language").value, Value("de"));
  EXPECT_THAT(error_of([&] { config.get("corpus.mox"); }).what(), HasSubstr("there is no key 'corpus.mox'"));
  std::map<std::string, std::string> effective;
  for (const ConfigEntry& entry : config.resolve(1)) effective[entry.path] = entry.value.to_json();
  EXPECT_EQ(effective["corpus.mix"], "0.5");
  EXPECT_EQ(effective["corpus.filter.language"], "\"de\"");
}

TEST(OwnSections, MistakesInThemAreThoseOfAnyKey) {
  EXPECT_THAT(refusal(R"("mix": 2)"), HasSubstr("config text:1:36: corpus.mix must be a finite number 0..1, found 2"));
  EXPECT_THAT(refusal(R"("mix": 2)"), HasSubstr("of the second; default 0.5"));
  EXPECT_THAT(refusal(R"("mox": 1)"), HasSubstr("unknown key 'mox' in corpus; did you mean 'mix'?"));
  EXPECT_THAT(refusal(R"("filter": {"languages": "en"})"), HasSubstr("did you mean 'language'?"));
  EXPECT_THAT(refusal(R"("filter": {"language": "fr"})"), HasSubstr("must be one of en, de"));
  EXPECT_THAT(refusal(R"("path": 3)"), HasSubstr("corpus.path must be a string"));
  EXPECT_THAT(refusal(R"("path": "a", "path": "b")"), HasSubstr("twice"));
  EXPECT_THAT(error_of([] { Config(R"({"corpus": {}})"); }).what(), HasSubstr("unknown key 'corpus'"));
}

TEST(OwnSections, StayWithTheConfigThatIsOverwritten) {
  Config config = read_config(Dict{{"train_batch_size", 8}}, {corpus()});
  config.overwrite(Dict{{"corpus", Dict{{"mix", "0.25"}}}}, "command line");
  config.fill("corpus.filter.language", "de", "program");
  EXPECT_EQ(config.get("corpus.mix").value, Value(0.25));
  EXPECT_EQ(config.get("corpus.mix").origin, "command line");
  EXPECT_EQ(config.get("corpus.filter.language").origin, "program");
  EXPECT_THAT(error_of([&] { config.fill("corpus.mix", -1, "program"); }).what(), HasSubstr("program: corpus.mix must be"));
}

TEST(OwnSections, ATableThatIsWrongIsRefused) {
  const auto said = [](const std::string& name, std::vector<ConfigRow> rows) {
    return std::string(error_of([&] { read_config(Dict(), {ConfigSection(name, std::move(rows))}); }).what());
  };
  EXPECT_THAT(said("fp16", {}), HasSubstr("has a key of this name already"));
  EXPECT_THAT(said("_mine", {}), HasSubstr("is not a valid section name"));
  EXPECT_THAT(said("mine", {{.name = "a", .type = "numbr"}}), HasSubstr("did you mean 'number'?"));
  EXPECT_THAT(said("mine", {{.name = "a", .type = "number", .range = "0 to 1"}}), HasSubstr("is not a valid range for a number"));
  EXPECT_THAT(said("mine", {{.name = "a", .type = "choice"}}), HasSubstr("is not a valid range for a choice"));
  EXPECT_THAT(said("mine", {{.name = "a", .type = "integer", .fallback = -1, .range = ">=0"}}),
              HasSubstr("the default of mine.a must be an integer >=0"));
  EXPECT_THAT(said("mine", {{.name = "a", .type = "any"}, {.name = "a", .type = "any"}}), HasSubstr("it appears twice"));
  EXPECT_THAT(said("mine", {{.name = "a", .type = "any"}, {.name = "a.b", .type = "any"}}),
              HasSubstr("is a value, not a section"));
  EXPECT_THAT(error_of([&] { read_config(Dict(), {corpus(), corpus()}); }).what(), HasSubstr("two sections have this name"));
}

}  // namespace
}  // namespace gannet
