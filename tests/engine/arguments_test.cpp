#include <gannet/gannet.h>

#include <gtest/gtest.h>

namespace gannet {
namespace {

struct CommandLine {
  explicit CommandLine(std::vector<std::string> words) : words_(std::move(words)) {
    for (auto& word : words_) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    count = static_cast<int>(words_.size());
  }
  std::vector<std::string> rest() const { return {pointers.begin(), pointers.begin() + count}; }
  std::vector<char*> pointers;
  int count;

 private:
  std::vector<std::string> words_;
};

TEST(Arguments, TakeDeepSpeedsFlagsAndLeaveTheProgramsOwn) {
  const std::vector<std::vector<std::string>> spellings = {
      {"train", "--deepspeed", "--deepspeed_config", "ds.json", "--epochs", "3"},
      {"train", "--deepspeed", "ds.json", "--epochs", "3"},
      {"train", "--epochs", "3", "--deepspeed_config=ds.json"},
  };
  for (const auto& words : spellings) {
    CommandLine line(words);
    const ConfigArguments taken = take_config_arguments(line.count, line.pointers.data());
    EXPECT_TRUE(taken.enabled);
    EXPECT_EQ(taken.config, "ds.json");
    EXPECT_EQ(line.rest(), (std::vector<std::string>{"train", "--epochs", "3"}));
  }
}

TEST(Arguments, OverridesBecomeANestedDictionary) {
  CommandLine line({"train", "--set", "optimizer.params.lr=3e-4", "--set", "bf16.enabled=true", "--set", "optimizer.type=SGD"});
  const ConfigArguments taken = take_config_arguments(line.count, line.pointers.data());
  EXPECT_FALSE(taken.enabled);
  EXPECT_EQ(Value(taken.overrides).to_json(), R"({"optimizer": {"params": {"lr": 3e-04}, "type": "SGD"}, "bf16": {"enabled": true}})");
}

TEST(Arguments, RefuseWhatIsIncompleteOrContradictory) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"train", "--deepspeed_config"}, {"train", "--set", "lr"}, {"train", "--deepspeed_config", "a.json", "--deepspeed", "b.json"}}) {
    CommandLine line(words);
    EXPECT_THROW(take_config_arguments(line.count, line.pointers.data()), Error);
  }
}

TEST(Arguments, ASwitchDoesNotSwallowTheProgramsOwnWords) {
  CommandLine line({"train", "--deepspeed", "data.bin", "--", "--deepspeed_config", "x.json"});
  const ConfigArguments taken = take_config_arguments(line.count, line.pointers.data());
  EXPECT_EQ(taken.config, "");
  EXPECT_EQ(line.rest(), (std::vector<std::string>{"train", "data.bin", "--", "--deepspeed_config", "x.json"}));
}

}  // namespace
}  // namespace gannet
