#include "config/parse.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "config/scan.h"
#include "expect_error.h"

namespace gannet::config {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Parse, CommentsAndTrailingCommasAreLegal) {
  const Tree tree = parse_text(R"({ // one
  "a": 1, # two
  /* three
     lines */ "b": [1, 2,],
  "c": {"d": "// no comment, # nor this /* nor this */",},
})",
                               "t.json");
  EXPECT_EQ(Value(tree.root).to_json(), R"({"a": 1, "b": [1, 2], "c": {"d": "// no comment, # nor this /* nor this */"}})");
}

TEST(Parse, BlankingKeepsEveryBytesPosition) {
  const std::string text = "{\"a\": 1, // ä\n \"b\": [1,],\n}";
  const Scan scan(text, "t.json");
  ASSERT_EQ(scan.text().size(), text.size());
  for (size_t i = 0; i < text.size(); ++i)
    if (scan.text()[i] != text[i]) {
      EXPECT_EQ(scan.text()[i], ' ');
    }
}

TEST(Parse, AKeyKnowsItsLineAndItsColumnInCharacters) {
  const Tree tree = parse_text("{\n  /* äöü */ \"a\": {\n\t\"b\": 1, \"ü\": 2, \"c\": 3}}", "t.json");
  EXPECT_EQ(tree.origin_of("/a").to_string(), "t.json:2:13");
  EXPECT_EQ(tree.origin_of("/a/b").to_string(), "t.json:3:2");
  EXPECT_EQ(tree.origin_of("/a/c").to_string(), "t.json:3:18");
  EXPECT_EQ(tree.origin_of("/a/c/deeper/0").to_string(), "t.json:3:18") << "falls back to the nearest ancestor";
}

TEST(Parse, KeysInsideListsAndWithEscapesHavePositions) {
  const Tree tree = parse_text("{\"a\\\"b\": [ {\"c/d\": 1},\n {\"e~f\": 2} ]}", "t.json");
  EXPECT_EQ(tree.origins.at("/a\"b/0/c~1d").to_string(), "t.json:1:13");
  EXPECT_EQ(tree.origins.at("/a\"b/1/e~0f").to_string(), "t.json:2:3");
}

TEST(Parse, AByteOrderMarkIsNoCharacter) {
  EXPECT_EQ(parse_text("\xEF\xBB\xBF{\"a\": 1}", "t.json").origins.at("/a").to_string(), "t.json:1:2");
}

TEST(Parse, NumbersKeepTheirKind) {
  const Tree tree = parse_text(R"({"a": 5, "b": 5e8, "c": -0.5, "d": 9223372036854775807, "e": 18446744073709551615})", "t.json");
  EXPECT_TRUE(tree.root.find("a")->is_int());
  EXPECT_FALSE(tree.root.find("b")->is_int());
  EXPECT_EQ(tree.root.find("c")->as_number(), -0.5);
  EXPECT_EQ(tree.root.find("d")->as_int(), INT64_MAX);
  EXPECT_FALSE(tree.root.find("e")->is_int());
}

TEST(Parse, ADuplicateKeyIsAnErrorAtAnyDepthAtThePlaceOfTheSecond) {
  const Error error = error_of([] { parse_text("{\"a\": [{\"b\": 1,\n \"c\": 2, \"b\": 3}]}", "t.json"); });
  EXPECT_EQ(error.message(), "t.json:2:10: the key 'b' is given twice in a.0, first at t.json:1:9");
}

TEST(Parse, DeepNestingIsRefusedAndDoesNotCrash) {
  EXPECT_THAT(error_of([] { parse_text("{\"a\": " + std::string(100000, '['), "t.json"); }).message(),
              HasSubstr("nested deeper than 64 levels"));
}

TEST(Parse, EveryPrefixOfAConfigIsAnErrorAndNotACrash) {
  const std::string text = "{\"a\": [1, -2.5e3, true, null, \"\\u00e4\\n\"], // c\n /* d */ \"b\": {\"c\": {}, \"d\": []},}";
  EXPECT_NO_THROW(parse_text(text, "t.json"));
  for (size_t length = 0; length < text.size(); ++length) {
    const Error error = error_of([&] { parse_text(text.substr(0, length), "t.json"); });
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_THAT(error.message(), StartsWith("t.json:"));
  }
}

TEST(Parse, EveryChangedByteIsReadOrIsOneErrorOfTheConfig) {
  const std::string text = "{\"a\": [1, -2.5e3, true, null, \"\\u00e4\"], # c\n /* d */ \"b\": {\"c\": {}, \"d\": []},}";
  for (size_t at = 0; at < text.size(); ++at)
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = text;
      changed[at] = static_cast<char>(byte);
      try {
        parse_text(changed, "t.json");
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::kConfig) << error.what();
      }
    }
}

TEST(Parse, AMissingFileNamesItsNearestNeighbour) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "gannet_parse_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "ds_config.json") << "{}";
  const Error error = error_of([&] { parse_file((folder / "ds_confg.json").string()); });
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.message(), HasSubstr("does not exist; did you mean 'ds_config.json'?"));
}

TEST(Parse, AFolderIsNoConfig) {
  EXPECT_THAT(error_of([] { parse_file(testing::TempDir()); }).message(), HasSubstr("is a folder, not a file"));
}

TEST(Parse, AFileWithoutAnEndIsRefused) {
  if (std::filesystem::exists("/dev/zero")) {
    EXPECT_THAT(error_of([] { parse_file("/dev/zero"); }).message(), HasSubstr("larger than 16 MiB"));
  }
}

}  // namespace
}  // namespace gannet::config
