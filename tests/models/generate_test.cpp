// The texts of each model are those of transformers, with the cache and without; draws repeat under a seed.
#include <gannet/gannet.h>
#include <gannet/models/gpt2.h>
#include <gannet/models/llama.h>
#include <gannet/models/t5.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "models/fixture.h"

namespace {

using fixture::Expected;
using gannet::models::Gpt2;
using testing::HasSubstr;

gannet::GenerateOptions options_of(const Expected& expected) {
  gannet::GenerateOptions options;
  options.max_new_tokens = fixture::kNewTokens;
  options.stop_tokens = expected.text("stop");
  return options;
}

template <class Model>
void expect_texts_of_transformers(const std::string& name) {
  SCOPED_TRACE(name);
  const auto model = gannet::from_pretrained<Model>(fixture::folder(name));
  const Expected expected(name);
  const gannet::TokenLists prompts = expected.texts("prompt");
  for (const bool cache : {true, false}) {
    SCOPED_TRACE(cache ? "with the cache" : "without the cache");
    gannet::GenerateOptions options = options_of(expected);
    options.use_cache = cache;
    EXPECT_EQ(gannet::generate(model, prompts, options), expected.texts("greedy"));
    options.num_beams = fixture::kBeams;
    EXPECT_EQ(gannet::generate(model, prompts, options), expected.texts("beams"));
  }
  EXPECT_TRUE(model->is_training()) << "as it was before";
}

// A single prompt gives the same text as next to longer ones.
template <class Model>
void expect_padding_to_change_nothing(const std::string& name) {
  SCOPED_TRACE(name);
  const auto model = gannet::from_pretrained<Model>(fixture::folder(name));
  const Expected expected(name);
  const gannet::TokenLists prompts = expected.texts("prompt");
  gannet::GenerateOptions options = options_of(expected);
  for (size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(gannet::generate(model, {prompts[i]}, options), gannet::TokenLists{expected.texts("greedy")[i]});
}

TEST(Generate, Gpt2WritesWhatTransformersDoes) {
  expect_texts_of_transformers<Gpt2>("gpt2");
  expect_padding_to_change_nothing<Gpt2>("gpt2");
}

TEST(Generate, LlamaQwen2AndMistralWriteWhatTransformersDoes) {
  for (const char* name : {"llama", "llama_linear", "qwen2", "qwen2_window", "mistral"}) {
    expect_texts_of_transformers<gannet::models::Llama>(name);
    expect_padding_to_change_nothing<gannet::models::Llama>(name);
  }
}

TEST(Generate, T5WritesWhatTransformersDoes) {
  for (const char* name : {"t5", "t5_gated", "mt5"}) {
    expect_texts_of_transformers<gannet::models::T5>(name);
    expect_padding_to_change_nothing<gannet::models::T5>(name);
  }
}

TEST(Generate, DrawsRepeatUnderASeedAndDoNotDependOnTheNeighbours) {
  const auto model = gannet::from_pretrained<Gpt2>(fixture::folder("gpt2"));
  const gannet::GenerateOptions options{.max_new_tokens = 20, .sample = true, .temperature = 2.0, .seed = 11};
  const auto texts = gannet::generate(model, {{5, 6, 7}, {8}}, options);
  EXPECT_EQ(gannet::generate(model, {{5, 6, 7}, {8}}, options), texts);
  EXPECT_EQ(gannet::generate(model, {{5, 6, 7}}, options)[0], texts[0]);
  gannet::GenerateOptions other = options;
  other.seed = 12;
  EXPECT_NE(gannet::generate(model, {{5, 6, 7}, {8}}, other), texts);
}

// A model that gives the next token these probabilities after any text.
struct Dice : torch::nn::Module {
  struct Cache {
    void reorder(const at::Tensor&) {}
  };
  at::Tensor next_logits(const gannet::GenerationInput& input, Cache&) {
    rows_seen.push_back(input.tokens.size(0));
    columns_seen.push_back(input.tokens.size(1));
    return torch::tensor({0.5, 0.2, 0.15, 0.1, 0.05}).log().expand({input.tokens.size(0), 5});
  }
  std::vector<int64_t> rows_seen, columns_seen;
};

std::vector<double> frequencies(const gannet::GenerateOptions& options) {
  Dice dice;
  constexpr int64_t kRows = 100, kTokens = 200;
  gannet::GenerateOptions many = options;
  many.max_new_tokens = kTokens;
  many.sample = true;
  many.seed = 3;
  std::vector<double> found(5);
  for (const auto& text : gannet::generate(dice, gannet::TokenLists(kRows, {0}), many))
    for (const int64_t token : text) found[static_cast<size_t>(token)] += 1.0 / (kRows * kTokens);
  return found;
}

// Within 5 standard deviations of a share of 20,000 draws.
void expect_shares(const std::vector<double>& found, const std::vector<double>& expected) {
  for (size_t i = 0; i < found.size(); ++i) {
    if (expected[i] == 0)
      EXPECT_EQ(found[i], 0) << i;
    else
      EXPECT_NEAR(found[i], expected[i], 5 * std::sqrt(expected[i] * (1 - expected[i]) / 20000) + 1e-9) << i;
  }
}

TEST(Generate, DrawsHaveTheModelsProbabilities) {
  expect_shares(frequencies({}), {0.5, 0.2, 0.15, 0.1, 0.05});
  expect_shares(frequencies({.top_k = 2}), {0.5 / 0.7, 0.2 / 0.7, 0, 0, 0});
  expect_shares(frequencies({.top_p = 0.8}), {0.5 / 0.85, 0.2 / 0.85, 0.15 / 0.85, 0, 0});
  expect_shares(frequencies({.top_p = 0.1}), {1, 0, 0, 0, 0});
  // A temperature of 1/2 squares them.
  const double total = 0.25 + 0.04 + 0.0225 + 0.01 + 0.0025;
  expect_shares(frequencies({.temperature = 0.5}), {0.25 / total, 0.04 / total, 0.0225 / total, 0.01 / total, 0.0025 / total});
}

TEST(Generate, StopsWhenEveryRowHasItsStopToken) {
  Dice dice;
  const auto texts = gannet::generate(dice, {{1, 2}, {3}}, {.max_new_tokens = 9, .stop_tokens = {4, 0}});
  EXPECT_EQ(texts, (gannet::TokenLists{{0}, {0}}));
  EXPECT_EQ(dice.rows_seen.size(), 1U);
  EXPECT_EQ(gannet::generate(dice, {}, {}), gannet::TokenLists());
}

TEST(Generate, WithTheCacheEachTokenIsPassedOnce) {
  Dice dice;
  gannet::generate(dice, {{1, 2, 3}}, {.max_new_tokens = 4});
  EXPECT_EQ(dice.columns_seen, (std::vector<int64_t>{3, 1, 1, 1}));
  dice.columns_seen.clear();
  gannet::generate(dice, {{1, 2, 3}}, {.max_new_tokens = 4, .use_cache = false});
  EXPECT_EQ(dice.columns_seen, (std::vector<int64_t>{3, 4, 5, 6}));
}

std::string error_of(const gannet::TokenLists& prompts, const gannet::GenerateOptions& options) {
  const auto model = gannet::from_config<Gpt2>(fixture::folder("gpt2"));
  try {
    gannet::generate(model, prompts, options);
  } catch (const gannet::Error& error) {
    EXPECT_EQ(error.code(), gannet::ErrorCode::kArgument);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Generate, MistakesAreNamed) {
  EXPECT_THAT(error_of({{1}, {}}, {}), HasSubstr("prompt 1 is empty"));
  EXPECT_THAT(error_of({std::vector<int64_t>(60, 1)}, {}),
              HasSubstr("prompt 0 has 60 tokens, and with max_new_tokens 20 that is more "
                        "than the model's 64 positions"));
  EXPECT_THAT(error_of({{1}}, {.max_new_tokens = 0}), HasSubstr("max_new_tokens is 0"));
  EXPECT_THAT(error_of({{1}}, {.sample = true, .temperature = 0}), HasSubstr("temperature is 0"));
  EXPECT_THAT(error_of({{1}}, {.sample = true, .num_beams = 2}), HasSubstr("choose one of the two"));
  EXPECT_THAT(error_of({{1}}, {.top_p = 1.5}), HasSubstr("top_p is 1.5"));
  EXPECT_THAT(error_of({{1}}, {.num_beams = 0}), HasSubstr("num_beams is 0"));
  EXPECT_THAT(error_of({{1}}, {.num_beams = 2, .length_penalty = std::nan("")}), HasSubstr("length_penalty is nan"));
}

// The sum of both overflows an integer.
TEST(Generate, AsManyTokensAsThereAreIntegersAreTooMany) {
  EXPECT_THAT(error_of({{1, 2}}, {.max_new_tokens = std::numeric_limits<int64_t>::max()}),
              HasSubstr("that is more than the model's 64 positions"));
}

TEST(Generate, AStopTokenOutsideOfTheVocabularyIsNamed) {
  EXPECT_THAT(error_of({{1}}, {.stop_tokens = {2, 50256}}),
              HasSubstr("stop_tokens has 50256, and the model's vocabulary is 0 to "));
  EXPECT_THAT(error_of({{1}}, {.stop_tokens = {-1}}), HasSubstr("stop_tokens has -1"));
}

// A program freezes the statistics of a part by eval(), and trains the rest.
TEST(Generate, AModuleThatWasInEvaluationModeStaysThere) {
  auto model = gannet::from_config<Gpt2>(fixture::folder("gpt2"));
  model->train();
  const auto frozen = model->children()[0];
  frozen->eval();
  gannet::generate(model, {{1, 2}}, {.max_new_tokens = 2});
  EXPECT_TRUE(model->is_training());
  EXPECT_FALSE(frozen->is_training());
  auto engine = gannet::initialize(model, {.config = gannet::Config(R"({"train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}})")})
                    .engine;
  frozen->eval();
  gannet::generate(*engine, {{1, 2}}, {.max_new_tokens = 2});
  EXPECT_TRUE(model->is_training());
  EXPECT_FALSE(frozen->is_training());
}

TEST(Generate, TokensOutsideOfTheVocabularyAreNamed) {
  EXPECT_THAT(error_of({{1, 2}, {3, 4, 9999}}, {}),
              HasSubstr("prompt 1 has token 9999 at place 2, and the model's vocabulary is 0 to "));
  EXPECT_THAT(error_of({{1, -100}}, {}), HasSubstr("prompt 0 has token -100 at place 1"));
  Dice dice;  // does not say its vocabulary
  EXPECT_THROW(gannet::generate(dice, {{-1}}, {}), gannet::Error);
}

// Logits of row 1 become `value` at the second token.
struct Broken : torch::nn::Module {
  using Cache = Dice::Cache;
  explicit Broken(double value) : value(value), weight(register_parameter("weight", torch::ones({1}))) {}
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  at::Tensor next_logits(const gannet::GenerationInput& input, Cache&) {
    at::Tensor logits = torch::tensor({0.5, 0.2, 0.3}).log().repeat({input.tokens.size(0), 1});
    if (++calls > 1) logits.narrow(0, logits.size(0) - 1, 1).fill_(value);
    return logits;
  }
  double value;
  at::Tensor weight;
  int calls = 0;
};

TEST(Generate, LogitsThatAreNotFiniteAreAnError) {
  for (const double value : std::vector<double>{std::nan(""), -INFINITY, INFINITY})
    for (const gannet::GenerateOptions& options : {gannet::GenerateOptions{}, gannet::GenerateOptions{.sample = true, .seed = 1},
                                                   gannet::GenerateOptions{.num_beams = 2}}) {
      Broken model(value);
      try {
        gannet::generate(model, {{1}, {2}}, options);
        ADD_FAILURE() << "no error";
      } catch (const gannet::Error& error) {
        EXPECT_EQ(error.code(), gannet::ErrorCode::kNonFinite);
        EXPECT_THAT(error.what(), HasSubstr("for token 1 after prompt 1"));
      }
      EXPECT_TRUE(model.is_training());
    }
  // A text that has ended may be followed by anything.
  struct EndsFirst : Broken {
    using Broken::Broken;
    at::Tensor next_logits(const gannet::GenerationInput& input, Cache& cache) {
      at::Tensor logits = Broken::next_logits(input, cache);
      logits[0].fill_(std::nan(""));
      if (calls == 1) logits[0] = torch::tensor({0.0, 1.0, 0.0});
      if (calls > 1) logits[1] = torch::tensor({1.0, 0.0, 0.0});
      return logits;
    }
  } ends_first(0);
  EXPECT_EQ(gannet::generate(ends_first, {{1}, {2}}, {.max_new_tokens = 3, .stop_tokens = {1}}),
            (gannet::TokenLists{{1}, {0, 0, 0}}));
}

TEST(Generate, AnEngineTrainsOnAfterAnError) {
  auto model = std::make_shared<Broken>(std::nan(""));
  auto engine = gannet::initialize(model, {.config = gannet::Config(R"({"train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}})")})
                    .engine;
  EXPECT_THROW(gannet::generate(*engine, {{1}}, {}), gannet::Error);
  EXPECT_TRUE(model->is_training());
}

}  // namespace
