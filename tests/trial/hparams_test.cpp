// Hyperparameters: typed access, files, the command line, and what is refused.
#include <gannet/error.h>
#include <gannet/trial_context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "hparam_sources.h"
#include "small_trial.h"

namespace {

using gannet::Dict;
using gannet::Hparams;
using gannet::List;
using gannet::trials::collect_hparams;
using gannet::trials::HparamSources;
using launched::Folder;

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const gannet::Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

std::string write(const Folder& folder, const std::string& name, const std::string& text) {
  std::ofstream(folder.path / name) << text;
  return (folder.path / name).string();
}

const Dict kDefaults = {{"lr", 1e-3},  {"width", 8},          {"name", "a"},
                        {"on", false}, {"steps", List{1, 2}}, {"model", Dict{{"depth", 2}}}};

TEST(Hparams, AreReadByTypeAndName) {
  const Hparams hparams(kDefaults);
  EXPECT_EQ(hparams.get<double>("lr"), 1e-3);
  EXPECT_EQ(hparams.get<double>("width"), 8.0);
  EXPECT_EQ(hparams.get<int>("width"), 8);
  EXPECT_EQ(hparams.get<std::string>("name"), "a");
  EXPECT_FALSE(hparams.get<bool>("on"));
  EXPECT_EQ(hparams.get<std::vector<int64_t>>("steps"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(hparams.get<int64_t>("model.depth"), 2);
  EXPECT_EQ(hparams.section("model").get<int64_t>("depth"), 2);
  EXPECT_EQ(hparams.get<int64_t>("model.heads", 4), 4);
  EXPECT_TRUE(hparams.has("lr"));
  EXPECT_FALSE(hparams.has("model.depth.more"));
}

TEST(Hparams, AWrongReadNamesKeyTypeAndFile) {
  const Hparams hparams(Dict{{"width", 1.5}, {"big", int64_t{1} << 40}, {"gap", nullptr}, {"list", List{1, "a"}}}, "hparams.yaml",
                        {{"width", "hparams.yaml:3"}});
  EXPECT_THAT(message_of([&] { hparams.get<int64_t>("width"); }),
              testing::HasSubstr("hparams.yaml:3: hyperparameter 'width' is 1.5, a number; the trial asks for an integer"));
  EXPECT_THAT(message_of([&] { hparams.get<int>("big"); }), testing::HasSubstr("asks for an integer of 32 bits"));
  EXPECT_THAT(message_of([&] { hparams.get<double>("gap"); }), testing::HasSubstr("'gap' is null"));
  EXPECT_THAT(message_of([&] { hparams.get<std::vector<int64_t>>("list"); }),
              testing::HasSubstr("asks for a list, each part of it an integer"));
  EXPECT_THAT(message_of([&] { hparams.get<double>("widht"); }),
              testing::HasSubstr(
                  "hparams.yaml: hyperparameter 'widht' is missing, and the trial asks for a number; did you mean 'width'?"));
}

TEST(Hparams, WhatWasReadIsRemembered) {
  const Hparams hparams(kDefaults);
  EXPECT_FALSE(hparams.was_read("lr"));
  hparams.get<double>("lr");
  EXPECT_TRUE(hparams.was_read("lr"));
  hparams.section("model");
  EXPECT_FALSE(hparams.was_read("model.depth"));
  hparams.section("model").get<int>("depth");
  EXPECT_TRUE(hparams.was_read("model.depth"));
  EXPECT_TRUE(hparams.was_read("model"));
  hparams.values();
  EXPECT_TRUE(hparams.was_read("steps"));
}

TEST(HparamSources, TheCommandLineLiesOverTheFileAndTheFileOverTheDefaults) {
  Folder folder("layers");
  const std::string file = write(folder, "hparams.yaml", "lr: 2e-3\nwidth: 16\nmodel:\n  depth: 3\n");
  const auto collected = collect_hparams({.defaults = kDefaults, .file = file, .assigned = {"model.depth=4", "name=7", "lr=1"}});
  const Hparams& hparams = collected.hparams;
  EXPECT_EQ(hparams.get<double>("lr"), 1.0);
  EXPECT_EQ(hparams.get<int>("width"), 16);
  EXPECT_EQ(hparams.get<int>("model.depth"), 4);
  EXPECT_EQ(hparams.get<std::string>("name"), "7");
  EXPECT_EQ(hparams.origin("width"), file + ":2");
  EXPECT_EQ(hparams.origin("model.depth"), "command line");
  EXPECT_EQ(collected.given, (std::vector<std::string>{"model.depth", "name", "lr"}));
}

TEST(HparamSources, AFileAloneSaysWhichNamesThereAre) {
  Folder folder("alone");
  const std::string json = write(folder, "hparams.json", "{\n  \"lr\": 1e-3,\n  \"model\": {\"depth\": 2}\n}\n");
  EXPECT_EQ(collect_hparams({.file = json, .assigned = {"model.depth=5"}}).hparams.get<int>("model.depth"), 5);
  EXPECT_EQ(collect_hparams({.file = json}).hparams.origin("model"), json + ":3");
  EXPECT_THAT(message_of([&] { collect_hparams({.file = json, .assigned = {"model.dpeth=5"}}); }),
              testing::HasSubstr("command line: unknown hyperparameter 'model.dpeth'; did you mean 'model.depth'?"));
  EXPECT_EQ(collect_hparams({.assigned = {"anything=[1, 2]"}}).hparams.get<std::vector<int>>("anything"),
            (std::vector<int>{1, 2}));
}

TEST(HparamSources, AllMistakesAreListedTogether) {
  Folder folder("mistakes");
  const std::string file = write(folder, "hparams.yaml", "width: wide\nlearning: 1\n");
  const std::string message = message_of([&] {
    collect_hparams(
        {.defaults = kDefaults, .file = file, .assigned = {"lr=fast", "on=1", "lrr=2", "lr=1", "steps", "model.depth.x=1"}});
  });
  for (const std::string& line :
       {file + ":1: hyperparameter 'width' is \"wide\", a string; the trial's defaults has an integer, 8",
        file + ":2: unknown hyperparameter 'learning'", std::string("command line: hyperparameter 'lr' is \"fast\", a string"),
        std::string("hyperparameter 'on' is 1, an integer; the trial's defaults has a boolean, false"),
        std::string("command line: unknown hyperparameter 'lrr'; did you mean 'lr'?"),
        std::string("command line: hyperparameter 'lr' is given twice"), std::string("--hparam steps is not NAME=VALUE"),
        std::string("hyperparameter 'model.depth' is an integer, so that there is no 'model.depth.x'")})
    EXPECT_THAT(message, testing::HasSubstr(line));
}

TEST(HparamSources, AFileThatIsDamagedOrMissingIsNamed) {
  Folder folder("damaged");
  EXPECT_THAT(message_of([&] { collect_hparams({.file = (folder.path / "none.yaml").string()}); }),
              testing::HasSubstr("cannot open the file of hyperparameters"));
  const std::string twice = write(folder, "twice.yaml", "lr: 1\nlr: 2\n"),
                    json = write(folder, "twice.json", "{\"lr\": 1, \"lr\": 2}");
  EXPECT_THAT(message_of([&] { collect_hparams({.file = twice}); }), testing::HasSubstr("twice.yaml:2: 'lr' is there twice"));
  EXPECT_THAT(message_of([&] { collect_hparams({.file = json}); }), testing::HasSubstr("twice.json: 'lr' is there twice"));
  EXPECT_THAT(message_of([&] { collect_hparams({.file = write(folder, "list.yaml", "- 1\n")}); }),
              testing::HasSubstr("holds a list"));
  EXPECT_THAT(message_of([&] { collect_hparams({.file = write(folder, "cut.json", "{\"lr\": ")}); }),
              testing::HasSubstr("cut.json"));
  EXPECT_THAT(message_of([&] { collect_hparams({.file = write(folder, "experiment.yaml", "hyperparameters: {lr: 1}\n")}); }),
              testing::HasSubstr("is the file of an experiment"));
}

TEST(HparamSources, AConfigIsGivenOnceAndFoundBesideItsFile) {
  Folder folder("config");
  write(folder, "ds.json",
        "{\"train_micro_batch_size_per_gpu\": 3, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}}}");
  const std::string file =
      write(folder, "hparams.yaml", "deepspeed_config: ds.json\noverwrite_deepspeed_args:\n  gradient_clipping: 0.5\n");
  gannet::TrialSettings settings;
  settings.hparams = collect_hparams({.file = file,
                                      .assigned = {"overwrite_deepspeed_args.optimizer.params.betas=[0.5, 0.6]"},
                                      .config_overrides = Dict{{"gradient_clipping", 2.0}}})
                         .hparams;
  const gannet::Config config = gannet::TrialContext(settings, nullptr).deepspeed_config();
  EXPECT_EQ(config.get("train_micro_batch_size_per_gpu").value.as_int(), 3);
  EXPECT_EQ(config.get("gradient_clipping").value.as_number(), 2.0);
  EXPECT_EQ(config.get("optimizer.params.lr").value.as_number(), 0.5);
  EXPECT_EQ(config.get("optimizer.params.betas").value, gannet::Value(List{0.5, 0.6}));

  EXPECT_THAT(message_of([&] { collect_hparams({.file = file, .deepspeed_config = "other.json"}); }),
              testing::HasSubstr("deepspeed_config is given twice: in " + file + " and as --deepspeed_config"));
  EXPECT_THAT(message_of([&] { collect_hparams({.assigned = {"deepspeed_config=a.json"}, .deepspeed_config = "b.json"}); }),
              testing::HasSubstr("deepspeed_config is given twice: as --hparam and as --deepspeed_config"));
  EXPECT_THAT(message_of([&] { collect_hparams({.file = file, .assigned = {"deepspeed_config.gradient_clipping=1"}}); }),
              testing::HasSubstr("overwrite_deepspeed_args changes a config that is a path"));
  // A default is no second config.
  EXPECT_EQ(collect_hparams({.defaults = {{"deepspeed_config", "a.json"}}, .deepspeed_config = "b.json"})
                .hparams.get<std::string>("deepspeed_config"),
            "b.json");
  EXPECT_THAT(message_of([] { gannet::TrialContext(gannet::TrialSettings{}, nullptr).deepspeed_config(); }),
              testing::HasSubstr("there is no deepspeed_config"));
  EXPECT_THAT(message_of([] { gannet::overwrite_deepspeed_config(3, {}); }),
              testing::HasSubstr("deepspeed_config is an integer"));
}

TEST(TrialLength, IsReadInBatchesAndEpochs) {
  using gannet::TrialLength;
  EXPECT_EQ(TrialLength::parse("12", "x").to_string(), "12 batches");
  EXPECT_EQ(TrialLength::parse("1 batch", "x").to_string(), "1 batch");
  EXPECT_EQ(TrialLength::parse("3epochs", "x").to_string(), "3 epochs");
  for (const char* text : {"0", "-1", "", "3 weeks", "1.5", "batches"})
    EXPECT_THAT(message_of([&] { TrialLength::parse(text, "--max_length"); }), testing::HasSubstr("is not a length above 0"))
        << text;
}

gannet::TrialSettings parse(std::vector<std::string> words, const gannet::TrialOptions& options) {
  words.insert(words.begin(), "trial");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int argc = static_cast<int>(words.size());
  return gannet::parse_trial_settings(argc, argv.data(), options);
}

TEST(TrialCommandLine, SettingsComeFromArguments) {
  const gannet::TrialOptions options{.hparams = kDefaults, .settings = {.report_period = 7}, .handle_signals = false};
  const auto settings = parse({"--max_length", "2 epochs", "--hparam", "lr=1e-2", "--hparam=width=3", "--metric", "accuracy",
                               "--larger_is_better", "--validation_period=5", "--keep_checkpoints", "2"},
                              options);
  EXPECT_EQ(settings.max_length.to_string(), "2 epochs");
  EXPECT_EQ(settings.validation_period.to_string(), "5 batches");
  EXPECT_EQ(settings.hparams.get<double>("lr"), 1e-2);
  EXPECT_EQ(settings.hparams.get<int>("width"), 3);
  EXPECT_EQ(settings.metric, "accuracy");
  EXPECT_FALSE(settings.smaller_is_better);
  EXPECT_EQ(settings.report_period, 7);
  EXPECT_EQ(settings.stop, nullptr);
  EXPECT_THAT(message_of([&] { parse({"--max_lenght", "3"}, options); }),
              testing::HasSubstr("unknown argument '--max_lenght'; did you mean '--max_length'?"));
  EXPECT_THAT(message_of([&] { parse({}, options); }), testing::HasSubstr("max_length is not given"));
  EXPECT_THAT(message_of([&] { parse({"--max_length", "3", "--report_period", "0"}, options); }),
              testing::HasSubstr("report_period is 0"));
  EXPECT_THAT(message_of([&] { parse({"--max_length", "3", "--seed", "x"}, options); }), testing::HasSubstr("--seed"));
  EXPECT_THAT(message_of([&] { parse({"--max_length", "3", "--estimate"}, options); }), testing::HasSubstr("--estimate"));
}

}  // namespace
