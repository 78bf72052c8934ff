// min_length, min_new_tokens, max_length, repetition_penalty and no_repeat_ngram_size write what
// transformers writes; generation_config.json is read, and options that generate() lacks are
// reported.
#include <gannet/gannet.h>
#include <gannet/models/gpt2.h>
#include <gannet/models/llama.h>
#include <gannet/models/t5.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

#include "models/fixture.h"

namespace {

using fixture::Expected;
using gannet::GenerateOptions;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// CASES of make_fixtures.py.
std::map<std::string, GenerateOptions> cases() {
  return {{"penalty", {.repetition_penalty = 1.3}},
          {"reward", {.repetition_penalty = 0.8}},
          {"ngram", {.no_repeat_ngram_size = 2}},
          {"token", {.no_repeat_ngram_size = 1}},
          {"new", {.min_new_tokens = 8}},
          {"length", {.min_length = 9}},
          {"all", {.min_new_tokens = 6, .repetition_penalty = 1.2, .no_repeat_ngram_size = 3}},
          {"limit", {.max_length = 11}}};
}

template <class Model>
void expect_cases_of_transformers(const std::string& name) {
  const auto model = gannet::from_pretrained<Model>(fixture::folder(name));
  const Expected expected(name), generated(name, "generated");
  const gannet::TokenLists prompts = expected.texts("prompt");
  const gannet::TokenLists plain = expected.texts("greedy");
  for (const auto& [key, some] : cases()) {
    for (const bool cache : {true, false}) {
      SCOPED_TRACE(name + " " + key + (cache ? " with the cache" : " without the cache"));
      GenerateOptions options = some;
      options.max_new_tokens = fixture::kNewTokens;
      options.stop_tokens = expected.text("stop");
      options.use_cache = cache;
      const gannet::TokenLists greedy = generated.texts(key + ".greedy");
      ASSERT_EQ(greedy.size(), prompts.size());
      EXPECT_EQ(gannet::generate(model, prompts, options), greedy);
      EXPECT_NE(greedy, plain) << "the case shows nothing";
      GenerateOptions drawn = options;  // among one token
      drawn.sample = true;
      drawn.top_k = 1;
      EXPECT_EQ(gannet::generate(model, prompts, drawn), greedy);
      options.num_beams = fixture::kBeams;
      EXPECT_EQ(gannet::generate(model, prompts, options), generated.texts(key + ".beams"));
    }
  }
}

TEST(GenerateOptions, Gpt2WritesWhatTransformersDoes) { expect_cases_of_transformers<gannet::models::Gpt2>("gpt2"); }
TEST(GenerateOptions, MistralWritesWhatTransformersDoes) { expect_cases_of_transformers<gannet::models::Llama>("mistral"); }
TEST(GenerateOptions, T5AndMt5WriteWhatTransformersDoes) {
  expect_cases_of_transformers<gannet::models::T5>("t5");
  expect_cases_of_transformers<gannet::models::T5>("mt5");
}

TEST(GenerateOptions, AFoldersGenerationConfigWritesWhatTransformersDoesWithIt) {
  const auto model = gannet::from_pretrained<gannet::models::T5>(fixture::folder("mt5"));
  std::vector<std::string> not_taken = {"something"};
  const GenerateOptions options = GenerateOptions::from_pretrained(fixture::folder("mt5"), &not_taken);
  EXPECT_THAT(not_taken, IsEmpty());
  EXPECT_EQ(options.num_beams, 3);
  EXPECT_EQ(gannet::generate(model, Expected("mt5").texts("prompt"), options), Expected("mt5", "generated").texts("configured"));
}

TEST(GenerateOptions, ALoadSaysThatTheFolderHasAGenerationConfig) {
  std::vector<std::string> lines;
  gannet::set_log_sink([&](gannet::LogLevel, const std::string& line) { lines.push_back(line); });
  gannet::from_pretrained<gannet::models::T5>(fixture::folder("mt5"));
  gannet::set_log_sink({});
  EXPECT_THAT(lines, testing::Contains(AllOf(HasSubstr("generation_config.json says"), HasSubstr("num_beams"),
                                             HasSubstr("GenerateOptions::from_pretrained"))));
}

class GenerationConfig : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gannet-generation-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder = name;
    gannet::set_log_sink([this](gannet::LogLevel, const std::string& line) { lines.push_back(line); });
  }
  void TearDown() override {
    gannet::set_log_sink({});
    std::filesystem::remove_all(folder);
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder + "/" + name) << text; }
  GenerateOptions read() { return GenerateOptions::from_pretrained(folder, &not_taken); }
  std::string error_of() {
    try {
      read();
    } catch (const gannet::Error& error) {
      code = error.code();
      return error.what();
    }
    return "nothing was thrown";
  }
  std::string folder;
  std::vector<std::string> lines, not_taken;
  gannet::ErrorCode code = gannet::ErrorCode::kInternal;
};

// Llama 2's, and what the config of BART-large-CNN says.
TEST_F(GenerationConfig, TheirKeysBecomeOptions) {
  write("generation_config.json", R"({"_from_model_config": true, "bos_token_id": 1, "eos_token_id": [2, 7], "pad_token_id": 0,
    "do_sample": true, "temperature": 0.6, "top_p": 0.9, "max_length": 4096, "transformers_version": "4.31.0"})");
  const GenerateOptions options = read();
  EXPECT_THAT(options.stop_tokens, ElementsAre(2, 7));
  EXPECT_TRUE(options.sample);
  EXPECT_EQ(options.temperature, 0.6);
  EXPECT_EQ(options.top_p, 0.9);
  EXPECT_EQ(options.top_k, 50) << "transformers' default";
  EXPECT_EQ(options.max_length, 4096);
  EXPECT_EQ(options.max_new_tokens, 4096) << "max_length limits";
  EXPECT_THAT(not_taken, IsEmpty());
  EXPECT_THAT(lines, IsEmpty());
  write("generation_config.json", R"({"eos_token_id": 2, "num_beams": 4, "max_length": 142, "max_new_tokens": 60,
    "min_length": 56, "min_new_tokens": 3, "length_penalty": 2.0, "early_stopping": true, "no_repeat_ngram_size": 3,
    "repetition_penalty": 1.2, "use_cache": false, "top_k": 0})");
  const GenerateOptions other = read();
  EXPECT_EQ(other.max_new_tokens, 60);
  EXPECT_EQ(other.max_length, 0) << "max_new_tokens comes before it, as in transformers";
  EXPECT_EQ(other.min_length, 56);
  EXPECT_EQ(other.min_new_tokens, 3);
  EXPECT_EQ(other.length_penalty, 2.0);
  EXPECT_TRUE(other.early_stopping);
  EXPECT_EQ(other.no_repeat_ngram_size, 3);
  EXPECT_EQ(other.repetition_penalty, 1.2);
  EXPECT_FALSE(other.use_cache);
  EXPECT_EQ(other.top_k, 0);
}

TEST_F(GenerationConfig, WhatGenerateDoesNotHaveIsTold) {
  write("config.json", R"({"decoder_start_token_id": 0})");
  write("generation_config.json", R"({"eos_token_id": 2, "forced_bos_token_id": 0, "suppress_tokens": [], "typical_p": 1.0,
    "min_p": 0.05, "early_stopping": "never", "decoder_start_token_id": 2, "bad_words_ids": [[3]], "guidance_scale": null,
    "num_return_sequences": 1, "output_scores": true, "renormalize_logits": false, "a_key_to_come": 4})");
  read();
  EXPECT_THAT(not_taken, UnorderedElementsAre("forced_bos_token_id", "min_p", "early_stopping", "decoder_start_token_id",
                                              "bad_words_ids", "a_key_to_come"));
  EXPECT_THAT(lines, ElementsAre(AllOf(HasSubstr("generation_config.json: generate() has no "), HasSubstr("a_key_to_come"))));
}

TEST_F(GenerationConfig, WithoutOneTheModelsConfigIsRead) {
  EXPECT_THAT(error_of(), HasSubstr("holds neither generation_config.json nor config.json"));
  EXPECT_EQ(code, gannet::ErrorCode::kNotFound);
  write("config.json", R"({"model_type": "gpt2", "n_embd": 8, "eos_token_id": 5, "num_beams": 2, "forced_eos_token_id": 2})");
  const GenerateOptions options = read();
  EXPECT_THAT(options.stop_tokens, ElementsAre(5));
  EXPECT_EQ(options.num_beams, 2);
  EXPECT_EQ(options.max_new_tokens, 20);
  EXPECT_THAT(not_taken, ElementsAre("forced_eos_token_id"));
}

TEST_F(GenerationConfig, AValueOfAnotherTypeIsNamed) {
  write("generation_config.json", R"({"eos_token_id": [1, "two"]})");
  EXPECT_THAT(error_of(), HasSubstr("eos_token_id holds \"two\", a string"));
  EXPECT_EQ(code, gannet::ErrorCode::kConfig);
  write("generation_config.json", R"({"num_beams": 1.5})");
  EXPECT_THAT(error_of(), HasSubstr("num_beams is 1.5"));
}

std::string refusal_of(const GenerateOptions& options, const gannet::TokenLists& prompts = {{1, 2}}) {
  const auto model = gannet::from_config<gannet::models::Gpt2>(fixture::folder("gpt2"));
  try {
    gannet::generate(model, prompts, options);
  } catch (const gannet::Error& error) {
    EXPECT_EQ(error.code(), gannet::ErrorCode::kArgument);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(GenerateOptions, MistakesAreNamed) {
  EXPECT_THAT(refusal_of({.max_length = -1}), HasSubstr("max_length is -1"));
  EXPECT_THAT(refusal_of({.max_length = 2}), HasSubstr("prompt 0 has 2 tokens, and max_length is 2"));
  EXPECT_THAT(refusal_of({.min_length = -1}), HasSubstr("min_length is -1"));
  EXPECT_THAT(refusal_of({.min_new_tokens = 21}), HasSubstr("min_new_tokens is 21, and max_new_tokens 20"));
  EXPECT_THAT(refusal_of({.repetition_penalty = 0}), HasSubstr("repetition_penalty is 0"));
  EXPECT_THAT(refusal_of({.no_repeat_ngram_size = -1}), HasSubstr("no_repeat_ngram_size is -1"));
  // Each of the 60 tokens once, and then none is left.
  EXPECT_THAT(refusal_of({.max_new_tokens = 62, .no_repeat_ngram_size = 1}), HasSubstr("no token may follow prompt 0 any more"));
  EXPECT_THAT(refusal_of({.max_new_tokens = 62, .num_beams = 2, .no_repeat_ngram_size = 1}),
              HasSubstr("no token may follow prompt 0 any more"));
}

}  // namespace
