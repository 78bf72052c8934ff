// TrainingArguments: the table, the command line, files, mistakes.
#include <gannet/error.h>
#include <gannet/training_arguments.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace {

using gannet::TrainingArguments;
using testing::HasSubstr;

TrainingArguments parse(std::vector<std::string> words, gannet::ParseOptions options = {.handle_signals = false}) {
  words.insert(words.begin(), "program");
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  int argc = static_cast<int>(words.size());
  return gannet::parse_training_arguments(argc, pointers.data(), options);
}

std::string mistakes(std::vector<std::string> words) {
  try {
    parse(std::move(words));
  } catch (const gannet::Error& error) {
    return error.what();
  }
  return "no error";
}

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Expected values are from transformers 5.23.0, written by tests/trainer/write_arguments.py.
TEST(Arguments, NamesAndDefaultsAreThoseOfTransformers) {
  const auto expected = nlohmann::json::parse(text_of(GANNET_SOURCE_DIR "/tests/trainer/transformers_arguments.json"));
  ASSERT_GT(expected.size(), 110u);
  const std::string markdown = gannet::training_arguments_markdown();
  for (const auto& [name, value] : expected.items()) {
    EXPECT_THAT(markdown, HasSubstr("| `" + name + "` |")) << name;
    if (name == "output_dir" || value.is_null()) continue;
    // Setting an argument to its default changes nothing.
    if (value.is_primitive() && !(value.is_string() && value.get<std::string>().empty())) {
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      EXPECT_TRUE(parse({"--" + name, text}).changed().empty()) << name << " " << text;
    }
  }
}

TEST(Arguments, TheDocsAreCurrent) {
  EXPECT_EQ(text_of(GANNET_SOURCE_DIR "/docs/training_arguments.md"), gannet::training_arguments_markdown())
      << "build/bin/gannet-training-arguments > docs/training_arguments.md";
}

TEST(Arguments, ACommandLineIsReadAsHuggingFaceReadsIt) {
  const auto a = parse({"--output_dir",
                        "out",
                        "--learning-rate=3e-4",
                        "--bf16",
                        "--load_best_model_at_end",
                        "false",
                        "--num_train_epochs",
                        "2",
                        "--report_to",
                        "tensorboard",
                        "none",
                        "--no_remove_unused_columns",
                        "--lr_scheduler_type",
                        "cosine",
                        "--lr_scheduler_kwargs",
                        R"({"num_cycles": 2})",
                        "--resume_from_checkpoint",
                        "True",
                        "--deepspeed",
                        "ds.json",
                        "--set",
                        "gradient_clipping=0.5"});
  EXPECT_EQ(a.output_dir, "out");
  EXPECT_EQ(a.learning_rate, 3e-4);
  EXPECT_TRUE(a.bf16);
  EXPECT_FALSE(a.load_best_model_at_end);
  EXPECT_EQ(a.num_train_epochs, 2);
  EXPECT_THAT(a.report_to, testing::ElementsAre("tensorboard", "none"));
  EXPECT_FALSE(a.remove_unused_columns);
  EXPECT_EQ(a.lr_scheduler_kwargs.find("num_cycles")->as_int(), 2);
  EXPECT_EQ(a.resume_from_checkpoint, "last");
  EXPECT_EQ(a.deepspeed.as_string(), "ds.json");
  EXPECT_EQ(a.config_overrides.find("gradient_clipping")->as_number(), 0.5);
  EXPECT_EQ(a.stop, nullptr);
}

TEST(Arguments, OlderSpellingsWork) {
  const auto a = parse({"--warmup_ratio", "0.1", "--evaluation_strategy", "epoch", "--per_gpu_train_batch_size", "4", "--fp16",
                        "--fp16_backend", "amp", "--fp16_opt_level", "O1", "--no_cuda", "--overwrite_output_dir"});
  EXPECT_EQ(a.warmup_steps, 0.1);
  EXPECT_EQ(a.eval_strategy, "epoch");
  EXPECT_EQ(a.per_device_train_batch_size, 4);
  EXPECT_TRUE(a.use_cpu);
  const auto apex = parse({"--fp16", "--fp16_backend", "apex", "--fp16_opt_level", "O2"});
  EXPECT_EQ(apex.fp16_backend, "apex");
  EXPECT_EQ(apex.fp16_opt_level, "O2");
  EXPECT_FALSE(parse({"--no_cuda", "False"}).use_cpu);
  EXPECT_TRUE(parse({"--no_cuda", "true", "--seed", "3"}).use_cpu);
  EXPECT_THAT(mistakes({"--no_cuda", "maybe"}), HasSubstr("argument no_cuda takes true or false, not 'maybe'"));
  EXPECT_THAT(mistakes({"--fp16_backend", "appex"}), HasSubstr("argument fp16_backend is appex"));
  EXPECT_THAT(mistakes({"--fp16_opt_level", "O4"}), HasSubstr("argument fp16_opt_level is O4"));
}

TEST(Arguments, AProgramsOwnOptionsStayInTheCommandLine) {
  std::vector<std::string> words = {"program", "--text", "a b", "--seed", "7", "--flag", "--n=3"};
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  int argc = static_cast<int>(words.size());
  const auto a =
      gannet::parse_training_arguments(argc, pointers.data(), {.leave = {"--text", "--flag", "--n"}, .handle_signals = false});
  EXPECT_EQ(a.seed, 7);
  ASSERT_EQ(argc, 5);
  EXPECT_STREQ(pointers[1], "--text");
  EXPECT_STREQ(pointers[2], "a b");
  EXPECT_STREQ(pointers[3], "--flag");
  EXPECT_STREQ(pointers[4], "--n=3");
}

TEST(Arguments, FilesOfJsonAndYamlSayTheSame) {
  const auto folder = std::filesystem::temp_directory_path() / ("arguments_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string json = folder / "a.json", yaml = folder / "a.yaml", bad = folder / "bad.yaml";
  std::ofstream(json)
      << R"({"learning_rate": 1e-3, "bf16": true, "report_to": ["none"], "deepspeed": {"train_batch_size": 8}, "eval_steps": null})";
  std::ofstream(yaml)
      << "learning_rate: 1e-3  # a comment\nbf16: true\nreport_to:\n  - none\ndeepspeed: {train_batch_size: 8}\neval_steps:\n";
  std::ofstream(bad) << "learning_rate: [1\nbf16: true\n";
  const auto a = gannet::training_arguments_from_file(json), b = gannet::training_arguments_from_file(yaml);
  EXPECT_EQ(a.learning_rate, 1e-3);
  EXPECT_TRUE(a.changed().find("deepspeed")->is_dict());
  EXPECT_EQ(gannet::Value(a.changed()), gannet::Value(b.changed()));
  EXPECT_EQ(parse({"--learning_rate", "0.5", "--arguments", yaml}).learning_rate, 0.5);  // the command line wins
  EXPECT_TRUE(parse({json, "--seed", "3"}).bf16);
  try {
    gannet::training_arguments_from_file(bad);
    ADD_FAILURE() << "no error";
  } catch (const gannet::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("bad.yaml:"));
  }
  std::filesystem::remove_all(folder);
}

TEST(Arguments, MistakesAreToldTogetherWithWhatMayHaveBeenMeant) {
  const std::string told =
      mistakes({"--lerning_rate", "1", "--adam_beta1", "1.5", "--save_strategy", "always", "--seed", "x", "word"});
  EXPECT_THAT(told, HasSubstr("unknown argument '--lerning_rate'; did you mean 'learning_rate'?"));
  EXPECT_THAT(told, HasSubstr("argument adam_beta1 is 1.5, allowed: from 0"));
  EXPECT_THAT(told, HasSubstr("argument save_strategy is always, allowed: no, steps, epoch, best"));
  EXPECT_THAT(told, HasSubstr("argument seed takes an integer, found the text \"x\""));
  EXPECT_THAT(mistakes({"--max_steps", "0"}), HasSubstr("max_steps is 0"));
  EXPECT_THAT(mistakes({"--load_best_model_at_end"}), HasSubstr("needs evaluations"));
  EXPECT_THAT(mistakes({"--load_best_model_at_end", "--eval_strategy", "epoch"}), HasSubstr("make them equal"));
  EXPECT_THAT(mistakes({"--load_best_model_at_end", "--eval_strategy", "steps", "--eval_steps", "3", "--save_steps", "4"}),
              HasSubstr("must be a multiple of eval_steps"));
  EXPECT_THAT(mistakes({"--torch_compile"}), HasSubstr("argument torch_compile is refused: nothing is compiled at run time"));
}

TEST(Arguments, AnAggregateIsCheckedLikeACommandLine) {
  const TrainingArguments good{.output_dir = "out", .learning_rate = 3e-4, .deepspeed = "ds_config.json"};
  EXPECT_NO_THROW(good.check());
  EXPECT_EQ(good.changed().entries().size(), 3u);
  const TrainingArguments bad{.per_device_train_batch_size = 0};
  EXPECT_THROW(bad.check(), gannet::Error);
}

TEST(Arguments, ParsingHandlesSignalsUnlessToldOtherwise) {
  const auto a = parse({}, {});
  ASSERT_NE(a.stop, nullptr);
  EXPECT_FALSE(a.stop->requested());
  std::raise(SIGTERM);
  EXPECT_TRUE(a.stop->requested());
}

TEST(Arguments, HelpAndCompletionListWhatWorks) {
  EXPECT_THAT(gannet::training_arguments_help(), HasSubstr("--learning_rate number"));
  EXPECT_THAT(gannet::training_arguments_completion("train"), HasSubstr("--save_strategy) COMPREPLY"));
  EXPECT_THAT(gannet::training_arguments_completion("train"), testing::Not(HasSubstr("torch_compile")));
}

}  // namespace
