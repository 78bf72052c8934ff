// An exported model trains under an engine as a model in C++ does.
#include <gannet/gannet.h>
#include <gannet/models/gpt2.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "exported/archive.h"

namespace {

using gannet::Dict;
using gannet::ExportedModule;
using gannet::NamedBatch;

Dict config_of(int64_t stage, const Dict& more = {}) {
  Dict config = {{"train_micro_batch_size_per_gpu", 2},
                 {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-2}}}}},
                 {"zero_optimization", Dict{{"stage", stage}}}};
  for (const auto& [key, value] : more.entries()) config[key] = value;
  return config;
}

NamedBatch batch_of(int step) {
  torch::manual_seed(static_cast<uint64_t>(step));
  const at::Tensor ids = torch::randint(1, 40, {2, 6 + step % 3}, at::kLong);
  return {{"input_ids", ids}, {"labels", ids}};
}

std::vector<float> losses_of(const Dict& config, const std::string& dtype = "float32") {
  const auto model = gannet::from_pretrained<ExportedModule>(archive::folder("gpt2"), {.config = config, .dtype = dtype});
  auto engine = gannet::initialize(model, {.config = config}).engine;
  std::vector<float> losses;
  for (int step = 0; step < 6; ++step) {
    const NamedBatch batch = batch_of(step % 3);
    torch::manual_seed(static_cast<uint64_t>(100 + step));
    const at::Tensor loss = engine->forward(batch);
    engine->backward(loss);
    engine->step();
    losses.push_back(loss.template item<float>());
  }
  return losses;
}

TEST(ExportedTraining, LowersTheLossAtEveryStageAlike) {
  const std::vector<float> first = losses_of(config_of(0));
  EXPECT_LT(first[3] + first[4] + first[5], first[0] + first[1] + first[2]);
  for (const int64_t stage : {1, 2, 3}) EXPECT_EQ(losses_of(config_of(stage)), first) << stage;
}

TEST(ExportedTraining, TakesTheGraphOfTheEnginesDtype) {
  const std::vector<float> fp32 = losses_of(config_of(0));
  for (const Dict& section :
       {Dict{{"bf16", Dict{{"enabled", true}}}}, Dict{{"torch_autocast", Dict{{"enabled", true}, {"dtype", "bf16"}}}}}) {
    const std::vector<float> losses = losses_of(config_of(2, section));
    EXPECT_NE(losses, fp32);
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], fp32[i], 0.05 * fp32[i]);
  }
}

// Batch norm's buffers in the dtype of the graph: as after Module.to(torch.bfloat16) in Python.
TEST(ExportedTraining, TakesBuffersInTheDtypeOfTheGraph) {
  Dict config = config_of(2, Dict{{"bf16", Dict{{"enabled", true}}}});
  const gannet::NamedBatch batch = {{"image", torch::rand({2, 3, 6, 6}).to(at::kBFloat16)}, {"label", torch::tensor({1, 2})}};
  {
    auto engine =
        gannet::initialize(gannet::from_pretrained<ExportedModule>(archive::folder("residual")), {.config = config}).engine;
    EXPECT_THROW(engine->forward(batch), gannet::Error);
  }
  config["data_types"] = Dict{{"buffer_dtype", "bf16"}};
  const auto model = gannet::from_pretrained<ExportedModule>(archive::folder("residual"));
  const at::Tensor mean = model->named_buffers()["net.1.norm_one.running_mean"], before = mean.clone();
  auto engine = gannet::initialize(model, {.config = config}).engine;
  for (int step = 0; step < 2; ++step) {
    engine->backward(engine->forward(batch));
    engine->step();
  }
  EXPECT_EQ(mean.scalar_type(), at::kBFloat16);
  EXPECT_FALSE(at::equal(mean.to(at::kFloat), before));
}

// The same model, written in C++: equal weights, equal batches, dropout off.
TEST(ExportedTraining, AgreesWithTheModelInCpp) {
  const auto exported = gannet::from_pretrained<ExportedModule>(archive::folder("gpt2"));
  exported->eval();
  gannet::ModelConfig json(
      Dict{{"model_type", "gpt2"}, {"vocab_size", 40}, {"n_positions", 32}, {"n_embd", 16}, {"n_layer", 2}, {"n_head", 4}});
  const auto model = gannet::from_config<gannet::models::Gpt2>(json);
  model->eval();
  const torch::NoGradGuard guard;
  const auto theirs = exported->named_parameters();
  for (auto& entry : model->named_parameters()) entry.value().copy_(theirs[entry.key()]);
  const NamedBatch batch = batch_of(1);
  const float loss = model->forward(batch.at("input_ids"), batch.at("labels")).item<float>();
  EXPECT_NEAR(exported->forward(batch).item<float>(), loss, 1e-6f * loss);
}

}  // namespace
