// Error texts as data: each tests/configs/bad_NAME.json has a bad_NAME.expected with the whole text
// of its error; the good_*.json are accepted.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <tuple>

#include "config/other_types.h"
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

TEST(OtherTypes, NamesOfOtherLibrariesGetWhatToWriteHere) {
  using testing::HasSubstr;
  for (const auto& [block, type, hint] :
       {std::tuple("optimizer", "DeepSpeedCPUAdam", "\"offload_optimizer\": {\"device\": \"cpu\"}"),
        std::tuple("optimizer", "FusedAdam", "write \"AdamW\""), std::tuple("optimizer", "adamw_torch_fused", "write \"AdamW\""),
        std::tuple("optimizer", "torch.optim.AdamW", "write the name alone, \"AdamW\""),
        std::tuple("optimizer", "paged_adamw_8bit", "write \"AdamW8bit\""),
        std::tuple("scheduler", "CosineAnnealingLR", "write \"cosine_with_min_lr\""),
        std::tuple("scheduler", "torch.optim.lr_scheduler.CosineAnnealingLR", "write \"cosine_with_min_lr\""),
        std::tuple("scheduler", "get_linear_schedule_with_warmup", "write \"WarmupDecayLR\""),
        std::tuple("scheduler", "StepLR", "a function of the step as its schedule (InitializeOptions::lr_scheduler)")})
    EXPECT_THAT(hint_of_type(block, type), HasSubstr(hint)) << type;
  EXPECT_EQ(hint_of_type("optimizer", "AdamX"), "") << "a slip of the pen gets the nearest names";
  EXPECT_EQ(hint_of_type("scheduler", "FusedAdam"), "");
}

}  // namespace
}  // namespace gannet::config
