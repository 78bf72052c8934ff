// Error texts as data: each tests/configs/bad_NAME.json stands beside bad_NAME.expected, the whole text of its error; the
// good_*.json are accepted.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "config/resolve.h"
#include "expect_error.h"

namespace gannet::config {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Configs are named by their bare file names, so that the expected texts hold no folder.
class Messages : public testing::Test {
 protected:
  void SetUp() override { fs::current_path(fs::path(GANNET_SOURCE_DIR) / "tests" / "configs"); }
  void TearDown() override { fs::current_path(before_); }
  fs::path before_ = fs::current_path();
};

TEST_F(Messages, EveryBadConfigGetsItsExpectedText) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(".")) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("bad_") || entry.path().extension() != ".json") continue;
    SCOPED_TRACE(name);
    const Error error = error_of([&] { resolve(*Document::from_file(name), 1); });
    EXPECT_EQ(error.what() + std::string("\n"), read_file(fs::path(name).replace_extension(".expected")));
    EXPECT_NE(error.code(), ErrorCode::kInternal);
    EXPECT_FALSE(error.next_step().empty());
    ++count;
  }
  EXPECT_GT(count, 50);
}

TEST_F(Messages, EveryGoodConfigIsAccepted) {
  for (const auto& entry : fs::directory_iterator(".")) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("good_")) {
      EXPECT_NO_THROW(resolve(*Document::from_file(name), 2)) << name;
    }
  }
}

}  // namespace
}  // namespace gannet::config
