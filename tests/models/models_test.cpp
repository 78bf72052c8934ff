// Logits, loss and all gradients of each model are those of transformers with the same weights.
#include <gannet/gannet.h>
#include <gannet/models/bert.h>
#include <gannet/models/bert_classifier.h>
#include <gannet/models/gpt2.h>
#include <gannet/models/llama.h>
#include <gannet/models/t5.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "models/fixture.h"

namespace {

using at::Tensor;
using fixture::Expected;

double farthest(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

// Padding has logits too, which nothing reads: those of real tokens are compared.
void expect_logits(const Tensor& found, const Expected& expected, const Tensor& mask) {
  ASSERT_EQ(found.sizes(), expected["logits"].sizes());
  const Tensor counts = mask.unsqueeze(-1).to(at::kFloat);
  EXPECT_LT(farthest(found.detach() * counts, expected["logits"] * counts), 1e-5);
}

void expect_gradients(torch::nn::Module& model, const Expected& expected) {
  size_t compared = 0;
  for (const auto& entry : model.named_parameters()) {
    ASSERT_TRUE(entry.value().grad().defined()) << entry.key();
    ASSERT_TRUE(expected.tensors.count("grad." + entry.key())) << entry.key();
    EXPECT_LT(farthest(entry.value().grad(), expected["grad." + entry.key()]), 1e-5) << entry.key();
    ++compared;
  }
  size_t there = 0;
  for (const auto& [name, tensor] : expected.tensors) there += name.starts_with("grad.");
  EXPECT_EQ(compared, there);
}

template <class Model>
void expect_like_transformers(const std::string& name) {
  SCOPED_TRACE(name);
  gannet::PretrainedReceipt receipt;
  const auto model = gannet::from_pretrained<Model>(fixture::folder(name), {}, &receipt);
  EXPECT_THAT(receipt.missing, testing::IsEmpty());
  EXPECT_THAT(receipt.unexpected, testing::IsEmpty());
  model->eval();
  const Expected expected(name);
  expect_logits(model->logits(expected["tokens"], expected["mask"]), expected, expected["mask"]);
  const Tensor loss = model->forward(expected["tokens"], expected["labels"], expected["mask"]);
  EXPECT_NEAR(loss.template item<double>(), expected["loss"].template item<double>(), 1e-5);
  loss.backward();
  expect_gradients(*model, expected);
  // Causality by attention itself, without a mask: the first row has no padding.
  const Tensor alone = model->forward(expected["tokens"].narrow(0, 0, 1));
  EXPECT_LT(farthest(alone.detach(), expected["logits"].narrow(0, 0, 1)), 1e-5);
}

// With activation checkpointing in the config the gradients have the same bits.
template <class Model>
void expect_checkpoints(const std::string& name, const gannet::Dict& zero) {
  SCOPED_TRACE(name);
  const Expected expected(name);
  std::vector<std::vector<Tensor>> gradients;
  for (const bool on : {false, true}) {
    auto model = gannet::from_pretrained<Model>(fixture::folder(name));
    gannet::Dict config{{"train_micro_batch_size_per_gpu", 2},
                        {"optimizer", gannet::Dict{{"type", "AdamW"}, {"params", gannet::Dict{{"lr", 0.0}}}}},
                        {"zero_optimization", zero}};
    if (on) config["activation_checkpointing"] = gannet::Dict{{"number_checkpoints", 2}};
    auto engine = gannet::initialize(model, {.config = config}).engine;
    EXPECT_EQ(engine->is_gradient_checkpointing(), on);
    engine->backward(engine->forward(expected["tokens"], expected["labels"], expected["mask"]));
    std::vector<Tensor> all;
    for (const std::string& parameter : engine->parameter_names()) all.push_back(engine->full_gradient(parameter));
    gradients.push_back(all);
  }
  ASSERT_EQ(gradients[0].size(), gradients[1].size());
  for (size_t i = 0; i < gradients[0].size(); ++i) EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
}

TEST(Models, Gpt2ComputesWhatTransformersDoes) { expect_like_transformers<gannet::models::Gpt2>("gpt2"); }
TEST(Models, Gpt2RecomputesItsLayersWithTheSameBits) {
  expect_checkpoints<gannet::models::Gpt2>("gpt2", gannet::Dict{{"stage", 0}});
}
TEST(Models, LlamaQwen2AndMistralComputeWhatTransformersDoes) {
  for (const char* name : {"llama", "llama_linear", "qwen2", "qwen2_window", "mistral"})
    expect_like_transformers<gannet::models::Llama>(name);
}
TEST(Models, LlamaRecomputesItsLayersWithTheSameBits) {
  for (const char* name : {"llama", "mistral"}) expect_checkpoints<gannet::models::Llama>(name, gannet::Dict{{"stage", 0}});
}

TEST(Models, BertComputesWhatTransformersDoes) { expect_like_transformers<gannet::models::Bert>("bert"); }
TEST(Models, BertRecomputesItsLayersWithTheSameBits) {
  expect_checkpoints<gannet::models::Bert>("bert", gannet::Dict{{"stage", 0}});
}

// The decoder reads the labels, shifted.
TEST(Models, T5ComputesWhatTransformersDoes) {
  for (const char* name : {"t5", "t5_gated", "mt5"}) {
    SCOPED_TRACE(name);
    gannet::PretrainedReceipt receipt;
    const auto model = gannet::from_pretrained<gannet::models::T5>(fixture::folder(name), {}, &receipt);
    EXPECT_THAT(receipt.missing, testing::IsEmpty());
    EXPECT_THAT(receipt.unexpected, testing::IsEmpty());
    const Expected expected(name);
    const Tensor logits = model->logits(expected["tokens"], model->shifted(expected["labels"]), expected["mask"]);
    EXPECT_LT(farthest(logits.detach(), expected["logits"]), 1e-5);
    const Tensor loss = model->forward(expected["tokens"], expected["labels"], expected["mask"]);
    EXPECT_NEAR(loss.item<double>(), expected["loss"].item<double>(), 1e-5);
    loss.backward();
    expect_gradients(*model, expected);
  }
}
// 1.1's way, against the other: without the scaling, and an output layer that has it in its weights.
TEST(Models, T5HasAnOutputLayerOfItsOwnWhereItIsNotTied) {
  const Expected expected("t5");
  const auto tied = gannet::from_pretrained<gannet::models::T5>(fixture::folder("t5"));
  gannet::PretrainedReceipt receipt;
  const auto own = gannet::from_pretrained<gannet::models::T5>(
      fixture::folder("t5"), {.model_overwrite = {{"tie_word_embeddings", false}, {"scale_decoder_outputs", nullptr}}}, &receipt);
  EXPECT_THAT(receipt.missing, testing::ElementsAre("lm_head.weight"));
  {
    const torch::NoGradGuard no_grad;
    own->named_parameters()["lm_head.weight"].copy_(tied->named_parameters()["shared.weight"] / 4);  // d_model is 16
  }
  const Tensor tokens = expected["tokens"], labels = expected["labels"], mask = expected["mask"];
  EXPECT_NEAR(own->forward(tokens, labels, mask).item<double>(), tied->forward(tokens, labels, mask).item<double>(), 1e-6);
}
TEST(Models, T5RecomputesItsLayersWithTheSameBits) {
  for (const char* name : {"t5", "t5_gated"}) expect_checkpoints<gannet::models::T5>(name, gannet::Dict{{"stage", 0}});
}

TEST(Models, Mt5HasItsOwnSizesAndNoScalingWhereItIsTied) {
  const auto config = gannet::models::T5Config::from(gannet::ModelConfig({{"model_type", "mt5"}, {"vocab_size", 50}}));
  EXPECT_EQ(config.d_ff, 1024);
  EXPECT_EQ(config.num_heads, 6);
  EXPECT_EQ(config.num_layers, 8);
  EXPECT_TRUE(config.is_gated_act);
  EXPECT_EQ(config.dense_act_fn, "gelu_new");
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_FALSE(config.scale_decoder_outputs);
}

TEST(Models, SwishIsSilu) {
  const Expected expected("llama");
  std::vector<Tensor> logits;
  for (const char* name : {"silu", "swish"})
    logits.push_back(
        gannet::from_pretrained<gannet::models::Llama>(fixture::folder("llama"), {.model_overwrite = {{"hidden_act", name}}})
            ->forward(expected["tokens"]));
  EXPECT_TRUE(at::equal(logits[0], logits[1]));
  const auto from = [](const gannet::Dict& values) { return gannet::ModelConfig(values); };
  EXPECT_EQ(gannet::models::Gpt2Config::from(from({{"activation_function", "swish"}})).activation_function, "swish");
  EXPECT_EQ(gannet::models::BertConfig::from(from({{"hidden_act", "swish"}})).hidden_act, "swish");
  EXPECT_EQ(gannet::models::T5Config::from(from({{"feed_forward_proj", "gated-swish"}})).dense_act_fn, "swish");
}

// Integers of any size and masks of any kind, and fp64 from the weights to the loss.
template <class Model>
void expect_kinds_of_numbers(const std::string& name) {
  SCOPED_TRACE(name);
  const auto model = gannet::from_pretrained<Model>(fixture::folder(name), {.dtype = "float64"});
  model->eval();
  const Tensor tokens = torch::tensor({{5, 6, 7, 8}, {9, 10, 11, 0}}), mask = torch::tensor({{1, 1, 1, 1}, {1, 1, 1, 0}});
  const Tensor labels = tokens.masked_fill(mask == 0, -100);
  const Tensor loss = model->forward(tokens, labels, mask);
  EXPECT_EQ(loss.scalar_type(), at::kDouble);
  for (const auto kind : {at::kInt, at::kShort}) {
    EXPECT_TRUE(at::equal(model->forward(tokens.to(at::kInt), labels.to(kind), mask.to(kind)), loss)) << kind;
    EXPECT_TRUE(at::equal(model->forward(tokens, labels.to(kind), mask.to(at::kBool)), loss)) << kind;
  }
  const auto narrow = gannet::from_pretrained<Model>(fixture::folder(name));
  narrow->eval();
  const double difference = loss.item<double>() - narrow->forward(tokens, labels, mask).template item<double>();
  EXPECT_LT(std::abs(difference), 1e-5);
  EXPECT_NE(difference, 0);
}

// A config that a program made: without heads it was a division by zero, with another width an error of a view.
TEST(Models, AWidthThatDoesNotDivideByTheHeadsIsNamed) {
  const auto error = [](const auto& make) -> std::string {
    try {
      make();
    } catch (const gannet::Error& error) {
      return error.message();
    }
    return "nothing was thrown";
  };
  using namespace gannet::models;
  EXPECT_EQ(error([] { Gpt2(Gpt2Config{.n_embd = 15, .n_head = 2}); }), "Gpt2Config: n_embd 15 is not a multiple of n_head 2");
  EXPECT_EQ(error([] { Gpt2(Gpt2Config{.n_embd = 16, .n_head = 0}); }), "Gpt2Config: n_embd 16 is not a multiple of n_head 0");
  EXPECT_EQ(error([] { Bert(BertConfig{.hidden_size = 10, .num_attention_heads = 4}); }),
            "BertConfig: hidden_size 10 is not a multiple of num_attention_heads 4");
  EXPECT_EQ(error([] { Llama(LlamaConfig{.hidden_size = 10, .num_attention_heads = 0}); }),
            "LlamaConfig: num_attention_heads 0 is not a multiple of num_key_value_heads 0");
  EXPECT_EQ(error([] { Llama(LlamaConfig{.hidden_size = 10, .num_attention_heads = 4}); }),
            "LlamaConfig: hidden_size 10 is not a multiple of num_attention_heads 4");
}

TEST(Models, TakeIntegersOfAnySizeAndKeepDoublePrecision) {
  expect_kinds_of_numbers<gannet::models::Gpt2>("gpt2");
  expect_kinds_of_numbers<gannet::models::Llama>("llama");
  expect_kinds_of_numbers<gannet::models::Bert>("bert");
  expect_kinds_of_numbers<gannet::models::T5>("t5");
}

// A recipe whose parameter groups have BERT's names (docs/recipes.md).
TEST(Models, BertTrainsByTheRecipeForEncoders) {
  const auto model = gannet::from_pretrained<gannet::models::Bert>(fixture::folder("bert"));
  const auto trained = gannet::initialize(model, {.config = GANNET_SOURCE_DIR "/examples/configs/fine_tune_encoder.json"});
  const auto& engine = trained.engine;
  ASSERT_EQ(trained.optimizer->group_count(), 2u);
  EXPECT_EQ(trained.optimizer->group(1).get("weight_decay"), 0);  // of biases and norms
  const Tensor tokens = torch::arange(1, 33).view({4, 8});
  const Tensor before = engine->full_fp32_parameter("bert.embeddings.word_embeddings.weight");
  for (int step = 0; step < 4; ++step) {  // the warm-up begins with two updates at rate 0
    engine->backward(engine->forward(tokens, tokens));
    EXPECT_TRUE(engine->step().applied);
  }
  EXPECT_FALSE(at::equal(before, engine->full_fp32_parameter("bert.embeddings.word_embeddings.weight")));
}

}  // namespace
