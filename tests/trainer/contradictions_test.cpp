// Arguments against the config: what was given counts, also at its default.
#include "habits.h"

namespace {

using namespace trainer_test;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kConfig =
    R"({"gradient_clipping": 0.5, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}})";

class Contradictions : public Habits {
 protected:
  static TrainingArguments parse(std::vector<std::string> words) {
    words.insert(words.begin(), "program");
    std::vector<char*> pointers;
    for (auto& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    int argc = static_cast<int>(words.size());
    return gannet::parse_training_arguments(argc, pointers.data(), {.handle_signals = false});
  }
  std::string told(TrainingArguments a, const char* config = kConfig) const {
    a.output_dir = folder / "run";
    a.max_steps = 1;
    a.deepspeed = config;
    return error_of([&] { Trainer(make_model(), a, {.train_dataset = make_samples(8)}).engine(); });
  }
  std::string file(const std::string& name, const std::string& text) const {
    fs::create_directories(folder);
    std::ofstream(folder / name) << text;
    return folder / name;
  }
};

TEST_F(Contradictions, AnArgumentIsGivenAlsoAtItsDefault) {
  const auto both = AllOf(HasSubstr("optimizer.params.lr = 1e-04 (config text:1:"), HasSubstr("but learning_rate gives 5e-05"),
                          HasSubstr("gradient_clipping = 0.5"), HasSubstr("but max_grad_norm gives 1.0"));
  EXPECT_THAT(told(parse({"--learning_rate", "5e-5", "--max_grad_norm", "1.0"})), both);
  const std::string json = file("a.json", R"({"learning_rate": 5e-05, "max_grad_norm": 1.0, "eval_steps": null})");
  const std::string yaml = file("a.yaml", "learning_rate: 5e-05\nmax_grad_norm: 1.0\n");
  EXPECT_THAT(told(parse({json})), both);
  EXPECT_THAT(told(parse({"--arguments", yaml})), both);
  EXPECT_THAT(told(gannet::training_arguments_from_file(json)), both);
  EXPECT_THAT(told(gannet::training_arguments_from({{"learning_rate", 5e-5}, {"max_grad_norm", 1.0}})), both);
  EXPECT_THAT(told(TrainingArguments{.given = {"learning_rate", "max_grad_norm"}}), both);
  EXPECT_THAT(told(parse({"--no_bf16"})), HasSubstr("bf16.enabled = true"));
  EXPECT_THAT(told(parse({"--bf16", "false"})), HasSubstr("bf16.enabled = true"));
}

TEST_F(Contradictions, WhatIsNotGivenContradictsNothing) {
  EXPECT_EQ(told(parse({})), "no error");
  EXPECT_EQ(told(TrainingArguments{.learning_rate = 5e-5}), "no error")
      << "a struct does not tell its default from one that was given";
  EXPECT_EQ(told(parse({"--learning_rate", "1e-4", "--max_grad_norm", "0.5", "--bf16"})), "no error");
  EXPECT_THAT(error_of([] { TrainingArguments{.given = {"lerning_rate"}}.check(); }), HasSubstr("did you mean 'learning_rate'?"));
}

// The command line wins over a file also where it says the default.
TEST_F(Contradictions, ADefaultOnTheCommandLineWinsOverAFile) {
  const std::string json = file("b.json", R"({"learning_rate": 1e-3, "weight_decay": 0.5})");
  const auto a = parse({"--learning_rate", "5e-5", "--arguments", json});
  EXPECT_EQ(a.learning_rate, 5e-5);
  EXPECT_EQ(a.weight_decay, 0.5);
  EXPECT_EQ(parse({"--arguments", json, "--learning_rate", "5e-5"}).learning_rate, 5e-5);
}

TEST_F(Contradictions, AnArgumentThatTheConfigLeavesNoPlaceForIsSaid) {
  EXPECT_EQ(told(parse({"--learning_rate", "0.1", "--optim", "sgd", "--lr_scheduler_type", "cosine", "--max_grad_norm", "1"}),
                 R"({"optimizer": {"type": "SGD"}, "scheduler": {"type": "constant"}})"),
            "no error");
  EXPECT_THAT(log(), AllOf(HasSubstr("no effect: argument learning_rate (the config has no optimizer.params.lr"),
                           HasSubstr("no effect: argument optim (the config has its own optimizer entry)"),
                           HasSubstr("no effect: argument lr_scheduler_type (the config has its own scheduler entry)"),
                           HasSubstr("no effect: argument max_grad_norm (the config has no gradient_clipping")));
  lines.clear();
  EXPECT_EQ(told(parse({"--learning_rate", "0.1", "--optim", "sgd", "--lr_scheduler_type", "cosine"}), "{}"), "no error");
  EXPECT_THAT(log(), Not(HasSubstr("no effect")));
}

TEST_F(Contradictions, NamesOfTransformersOptimizersChooseThePlugin) {
  const auto made = [&](const std::string& optim) {
    auto a = arguments(2);
    a.optim = optim;
    a.adam_beta1 = 0.8;
    a.weight_decay = 0.1;
    Trainer trainer(make_model(), a, {.train_dataset = make_samples(8)});
    EXPECT_EQ(trainer.train().global_step, 2) << optim;
    return trainer.engine().config_table();
  };
  EXPECT_THAT(made("adafactor"), AllOf(HasSubstr("\"Adafactor\""), HasSubstr("optimizer.params.scale_parameter = false"),
                                       HasSubstr("optimizer.params.relative_step = false")));
  EXPECT_THAT(made("lion_32bit"), AllOf(HasSubstr("\"Lion\""), HasSubstr("optimizer.params.betas = [0.8, 0.999]")));
  for (const char* name : {"adamw_8bit", "adamw_bnb_8bit"}) EXPECT_THAT(made(name), HasSubstr("\"AdamW8bit\""));
  EXPECT_THAT(made("schedule_free_adamw"), HasSubstr("\"AdamWScheduleFree\""));
  EXPECT_THAT(error_of([] { parse({"--optim", "paged_adamw_32bit"}); }),
              AllOf(HasSubstr("argument optim is paged_adamw_32bit, allowed: adamw_torch,"),
                    HasSubstr("\"optimizer\": {\"type\": \"NAME\"}"), HasSubstr("offload_optimizer")));
}

TEST_F(Contradictions, NumbersAsTextAndFormerNamesGetAFittingSentence) {
  EXPECT_THAT(
      error_of([] { gannet::training_arguments_from({{"learning_rate", "3e-5"}}); }),
      HasSubstr("argument learning_rate takes a finite number, found the text \"3e-5\" (write the number without quotes)"));
  EXPECT_THAT(error_of([] { gannet::training_arguments_from({{"max_steps", "5"}}); }), HasSubstr("found the text \"5\" (write"));
  for (const auto& found : {error_of([] { parse({"--group_by_length"}); }),
                            error_of([] { gannet::training_arguments_from({{"group_by_length", true}}); })})
    EXPECT_THAT(found, HasSubstr("transformers 5 has it as train_sampling_strategy group_by_length"));
  EXPECT_THAT(error_of([] { gannet::training_arguments_from({{"predict_with_generate", true}}); }),
              HasSubstr("unknown argument 'predict_with_generate'; it belongs to a training script of transformers"));
}

TEST_F(Contradictions, AnArgumentAtItsDefaultIsSaidToBe) {
  EXPECT_THAT(told(parse({"--no_bf16"})),
              AllOf(HasSubstr("but bf16"), HasSubstr("bf16_full_eval (its default) together give false")));
  const auto mistake = [](TrainingArguments a) { return error_of([&] { a.check(); }); };
  EXPECT_THAT(mistake({.eval_strategy = "epoch", .load_best_model_at_end = true}),
              HasSubstr("eval_strategy is epoch and save_strategy is steps (its default), so"));
  EXPECT_THAT(mistake({.eval_strategy = "steps", .eval_steps = 300, .load_best_model_at_end = true}),
              HasSubstr("save_steps (500.0, its default) must be a multiple of eval_steps (300.0)"));
}

TEST_F(Contradictions, AFileOfArgumentsThatIsSomethingElseIsCalledThat) {
  const auto told_of = [&](const std::string& name, const std::string& text) {
    const std::string path = file(name, text);
    const std::string found = error_of([&] { gannet::training_arguments_from_file(path); });
    EXPECT_THAT(found, HasSubstr(path));
    EXPECT_THAT(found, Not(HasSubstr("json.exception")));
    for (const char letter : found) EXPECT_TRUE(letter == '\n' || (letter >= ' ' && letter < 0x7f)) << found;
    return found;
  };
  for (const char* name : {"a.json", "a.yaml"}) {
    for (const char* text : {"", " \n\n"}) EXPECT_THAT(told_of(name, text), HasSubstr("{} stands for every default")) << name;
    EXPECT_THAT(told_of(name, "\x1f\x8b\x08\x01"), HasSubstr("is compressed with gzip"));
    EXPECT_THAT(told_of(name, "PK\3\4abc"), HasSubstr("is a zip archive"));
    EXPECT_THAT(told_of(name, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"),
                HasSubstr("is a Git LFS pointer"));
    EXPECT_THAT(told_of(name, "\n<!DOCTYPE html><html>"), HasSubstr("is a web page (HTML)"));
    EXPECT_THAT(told_of(name, std::string("\x08\0\0\0{}", 6)), HasSubstr("is a binary file"));
  }
  EXPECT_THAT(told_of("a.yaml", "---\n# learning_rate: 1\n...\n"), HasSubstr("is empty"));
  EXPECT_THAT(told_of("a.json", "learning_rate: 1e-3\n"), HasSubstr("is YAML, under the name of a JSON file"));
  EXPECT_THAT(told_of("a.json", "{\"learning_rate\": 1e-3,\n \xff}"), HasSubstr("a.json:2:2: the text is not JSON from here"));
  EXPECT_THAT(told_of("a.json", "{\"max_steps\": 1"), HasSubstr("the JSON text ends here"));
  EXPECT_THAT(told_of("a.json", "{\"learning_rate\": 1e999}"), HasSubstr("a number is too large"));
  for (const char* text : {"{}", "--- {}\n"})
    EXPECT_EQ(error_of([&] { gannet::training_arguments_from_file(file("b.yaml", text)); }), "no error") << text;
  EXPECT_EQ(error_of([&] { gannet::training_arguments_from_file(file("b.json", "{}")); }), "no error");
}

}  // namespace
