#include <ATen/ops/empty.h>
#include <gannet/gannet.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

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
  EXPECT_EQ(Value(taken.overrides).to_json(),
            R"({"optimizer": {"params": {"lr": 3e-04}, "type": "SGD"}, "bf16": {"enabled": true}})");
}

TEST(Arguments, RefuseWhatIsIncompleteOrContradictory) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"train", "--deepspeed_config"},
                                             {"train", "--set", "lr"},
                                             {"train", "--deepspeed_config", "a.json", "--deepspeed", "b.json"}}) {
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

TEST(Arguments, AskWhatARunWouldTake) {
  CommandLine plain({"train", "--estimate", "--deepspeed_config", "ds.json", "7"}), many({"train", "--estimate=8"}),
      none({"train"});
  EXPECT_EQ(take_config_arguments(plain.count, plain.pointers.data()).estimate, 0u);
  EXPECT_EQ(plain.rest(), (std::vector<std::string>{"train", "7"}));
  EXPECT_EQ(take_config_arguments(many.count, many.pointers.data()).estimate, 8u);
  EXPECT_EQ(take_config_arguments(none.count, none.pointers.data()).estimate, std::nullopt);
  CommandLine wrong({"train", "--estimate=many"});
  EXPECT_THROW(take_config_arguments(wrong.count, wrong.pointers.data()), Error);
}

struct Tied : torch::nn::Module {
  Tied() { register_parameter("other", register_parameter("one", at::empty({300, 400}))); }
};

TEST(Estimate, CountsAModulesParametersOnceAndTakesTheConfigsRow) {
  const Config config(Dict{{"train_batch_size", 8},
                           {"accelerator", Dict{{"type", "cpu"}}},
                           {"bf16", Dict{{"enabled", true}}},
                           {"optimizer", Dict{{"type", "SGD"}, {"params", Dict{{"lr", 0.1}, {"momentum", 0.9}}}}},
                           {"zero_optimization", Dict{{"stage", 1}}}});
  const std::string text = estimate(Tied(), config, {.ranks = 4});
  for (const char* part :
       {"each of 4 ranks (4 on a host), for 120000 parameters in bf16, the largest one with 120000 elements, with 4 bytes of "
        "optimizer states for each:",
        "<- the config", "the config: stage 1 fits"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
  EXPECT_THROW(estimate(Tied(), Config()), Error);
}

}  // namespace
}  // namespace gannet
