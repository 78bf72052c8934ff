// The operators that `recompute` may name: the table against the docs, and every wrong name of a config at once.
#include "config/recomputed_operators.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "config/mistakes.h"
#include "expect_error.h"

namespace gannet::config {
namespace {

using testing::HasSubstr;

// The words in backquotes of the second column of the table below a heading.
std::vector<std::string> names_in_table(const std::string& file, const std::string& heading) {
  std::ifstream in(file);
  std::vector<std::string> names;
  std::string line;
  while (std::getline(in, line) && line != heading) {
  }
  while (std::getline(in, line) && !line.starts_with("## ")) {
    if (!line.starts_with("| ")) continue;
    for (size_t at = line.find('`'); at != std::string::npos; at = line.find('`', at)) {
      const size_t end = line.find('`', at + 1);
      names.push_back(line.substr(at + 1, end - at - 1));
      at = end + 1;
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(RecomputedOperators, TheDocsListThoseOfTheTable) {
  const auto documented =
      names_in_table(std::string(GANNET_SOURCE_DIR) + "/docs/activation_operators.md", "## What may be in the list");
  EXPECT_EQ(documented, names_of_recomputed_operators());
  EXPECT_GT(documented.size(), 50u);
}

TEST(RecomputedOperators, NoNameStandsTwice) {
  auto names = names_of_recomputed_operators();
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(RecomputedOperators, ACheckFindsEveryWrongNameAndTheNearestOne) {
  const auto document = Document::from_text(
      R"({"train_batch_size": 8, "gannet": {"activation_checkpointing": {"recompute": ["gleu", "gelu", "batch_norm", "dropuot"]}}})",
      "ds_config.json");
  std::vector<Error> mistakes;
  resolve(*document, 1, mistakes);
  ASSERT_EQ(mistakes.size(), 3u);
  EXPECT_THAT(mistakes[0].what(), HasSubstr("ds_config.json:1:"));
  EXPECT_THAT(mistakes[0].what(), HasSubstr("did you mean 'gelu'"));
  EXPECT_THAT(mistakes[1].what(), HasSubstr("'batch_norm', which is not an operator"));
  EXPECT_THAT(mistakes[2].what(), HasSubstr("did you mean 'dropout'"));
}

}  // namespace
}  // namespace gannet::config
