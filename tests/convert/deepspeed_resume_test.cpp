// An engine resumes from what was imported.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gannet/gannet.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "convert/deepspeed.h"
#include "convert/write_deepspeed.h"
#include "files/node.h"
#include "files/support.h"

namespace gannet::convert {
namespace {

using namespace files;

// The model of make_deepspeed_fixtures.py, its first layer under another name.
struct TinyImpl : torch::nn::Module {
  TinyImpl()
      : embed(register_module("embed", torch::nn::Embedding(7, 4))),
        first(register_module("start", torch::nn::Linear(4, 5))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({5})))),
        frozen(register_module("frozen", torch::nn::Linear(5, 3))),
        second(register_module("second", torch::nn::Linear(5, 4))),
        scale(register_buffer("scale", at::zeros({3}))) {
    for (auto& parameter : frozen->parameters()) parameter.requires_grad_(false);
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor x = norm(first(embed(tokens)));
    const at::Tensor logits = at::matmul(second(at::relu(x)), embed->weight.t());
    return at::cross_entropy_loss(logits.flatten(0, 1), tokens.roll(1, 1).flatten()) + (frozen(x) * scale).mean();
  }
  torch::nn::Embedding embed;
  torch::nn::Linear first;
  torch::nn::LayerNorm norm;
  torch::nn::Linear frozen, second;
  at::Tensor scale;
};

std::shared_ptr<Engine<TinyImpl>> engine_of(const std::shared_ptr<TinyImpl>& model, const std::string& precision) {
  Dict config{{"train_micro_batch_size_per_gpu", 4},
              {"accelerator", Dict{{"type", "cpu"}}},
              {"zero_optimization", Dict{{"stage", 1}}},
              {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-2}}}}},
              {"scheduler", Dict{{"type", "WarmupLR"},
                                 {"params", Dict{{"warmup_min_lr", 0}, {"warmup_max_lr", 1e-2}, {"warmup_num_steps", 8}}}}}};
  if (precision == "bf16") config["bf16"] = Dict{{"enabled", true}};
  if (precision == "fp16") config["fp16"] = Dict{{"enabled", true}, {"initial_scale_power", 10}};
  ParameterGroup matrices{.name = "matrices"}, vectors{.overrides = Dict{{"weight_decay", 0}}, .name = "vectors"};
  for (const auto& parameter : model->parameters())
    if (parameter.requires_grad()) (parameter.dim() > 1 ? matrices : vectors).parameters.push_back(parameter);
  return initialize(model, {.config = config, .model_parameters = {matrices, vectors}}).engine;
}

class DeepSpeedResume : public FolderTest {};

TEST_F(DeepSpeedResume, EveryPairOfPrecisionsContinuesWithAScaleOfItsOwn) {
  for (const auto& [fixture, saved] : {std::pair("s2-fp32-r2", "fp32"), std::pair("s1-bf16-r2", "bf16"),
                                       std::pair("s0-bf16-r1", "bf16"), std::pair("s1-fp16-r1", "fp16")})
    for (const std::string precision : {"fp32", "bf16", "fp16"}) {
      SCOPED_TRACE(std::string(fixture) + " to " + precision);
      fs::remove_all(root_);
      const std::string from = std::string(GANNET_SOURCE_DIR) + "/tests/convert/deepspeed/" + fixture;
      const std::string imported = import_deepspeed(from, file("out"), {.renames = {{"first.", "start."}}}).to_string();
      auto model = std::make_shared<TinyImpl>();
      auto engine = engine_of(model, precision);
      const LoadReceipt receipt = engine->load_checkpoint(file("out"));
      const double scale = nlohmann::json::parse(read_text(from + "/expected.json"))["scale"];
      const bool was_fp16 = std::string(saved) == "fp16";
      EXPECT_EQ(engine->loss_scale(), precision != "fp16" ? 1 : was_fp16 ? scale : 1024);
      const auto told = testing::HasSubstr("the loss scale begins at the config's 1024");
      if (precision == "fp16" && !was_fp16)
        EXPECT_THAT(receipt.notes, testing::Contains(told));
      else
        EXPECT_THAT(receipt.notes, testing::Not(testing::Contains(told)));
      EXPECT_EQ(imported.find("not taken: a loss scale") == std::string::npos, was_fp16) << imported;
      for (int step = 0; step < 3; ++step) {
        const at::Tensor loss = engine->forward(at::randint(7, {4, 3}, at::kLong));
        engine->backward(loss);
        engine->step();
      }
      EXPECT_EQ(engine->global_steps(), receipt.global_steps + 3);
    }
}

TEST_F(DeepSpeedResume, TakesUpMastersMomentsRateAndStepAtAnotherStageAndDtype) {
  const std::string fixture = std::string(GANNET_SOURCE_DIR) + "/tests/convert/deepspeed/s3-bf16-r2";
  import_deepspeed(fixture, file("out"), {.renames = {{"first.", "start."}}});
  auto model = std::make_shared<TinyImpl>();
  auto engine = engine_of(model, "fp32");
  const LoadReceipt receipt = engine->load_checkpoint(file("out"));
  EXPECT_EQ(receipt.parameters, 9);
  EXPECT_EQ(receipt.buffers, 1);
  EXPECT_EQ(receipt.states, 14);
  EXPECT_EQ(receipt.global_steps, 4);
  EXPECT_EQ(receipt.global_samples, 16);
  EXPECT_EQ(receipt.client_state.document.find("epoch")->as_int(), 2);
  const auto wanted = nlohmann::json::parse(read_text(fixture + "/expected.json"));
  EXPECT_EQ(engine->get_lr()[0], wanted["lr"][0]);
  for (const auto& [name, tensor] : engine->fp32_parameters()) {
    const std::string theirs = name.starts_with("start.") ? "first." + name.substr(6) : name;
    std::string text;
    for (size_t i = 0; i < tensor.nbytes(); ++i) {
      char two[3];
      std::snprintf(two, sizeof(two), "%02x", static_cast<const unsigned char*>(tensor.const_data_ptr())[i]);
      text += two;
    }
    EXPECT_EQ(text, wanted["tensors"][theirs]["master"]) << name;
  }
  EXPECT_EQ(model->scale[1].item().toDouble(), 2.0);
  const at::Tensor loss = engine->forward(at::randint(7, {4, 3}, at::kLong));
  engine->backward(loss);
  EXPECT_TRUE(engine->step().applied);
  EXPECT_EQ(engine->global_steps(), 5);
}

// A run's own checkpoint, with what only Gannet saves: exported, imported and loaded, training goes the same way.
TEST_F(DeepSpeedResume, ARunThatWasExportedContinuesAsItsOwnCheckpointDoes) {
  std::vector<at::Tensor> samples;
  for (int64_t i = 0; i < 6; ++i) samples.push_back((at::arange(12, at::kLong) * (i + 3)).remainder(7).view({4, 3}));
  const auto train = [&](auto& engine, size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      engine->backward(engine->forward(samples[i]));
      engine->step();
    }
  };
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    fs::remove_all(root_);
    auto model = std::make_shared<TinyImpl>();
    auto engine = engine_of(model, precision);
    train(engine, 0, 3);
    ClientState client;
    client.document["epoch"] = 2;
    client.document["module"] = "a key that DeepSpeed's engine uses itself";
    engine->add_state("position", [] { return Value(3); }, [](const Value&) {});
    engine->save_checkpoint(file("run"), {.client_state = client});
    train(engine, 3, 6);
    const auto wanted = engine->fp32_parameters();

    const checkpoint::Opened saved = checkpoint::open(file("run"), {});
    for (const int64_t stage : {-1, 0, 1, 2, 3}) {  // -1: universal
      SCOPED_TRACE(stage);
      const std::string out = file("out" + std::to_string(stage)), in = file("in" + std::to_string(stage));
      const std::string said =
          (stage < 0 ? write_universal(saved, out, {}) : write_deepspeed(saved, out, {stage, 2, 0}, {})).to_string();
      for (const char* line :
           {"left out: random-number states", "left out: 'position' of each rank", "left out: 'module' of client_state"})
        EXPECT_THAT(said, testing::HasSubstr(line));
      import_deepspeed(out, in, {});
      auto other = std::make_shared<TinyImpl>();
      auto resumed = engine_of(other, precision);
      const LoadReceipt receipt = resumed->load_checkpoint(in);
      EXPECT_EQ(receipt.global_steps, 3);
      EXPECT_EQ(receipt.client_state.document.find("epoch")->as_int(), 2);
      EXPECT_EQ(resumed->global_samples(), 12);
      train(resumed, 3, 6);
      const auto found = resumed->fp32_parameters();
      ASSERT_EQ(found.size(), wanted.size());
      for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(found[i].second.equal(wanted[i].second)) << found[i].first;
      EXPECT_EQ(resumed->loss_scale(), engine->loss_scale());
    }
  }
}

// A scalar, a parameter in fp64 and one without elements: whatever DeepSpeed cannot hold as it is, the receipt says.
struct OddImpl : torch::nn::Module {
  OddImpl()
      : factor(register_parameter("factor", at::scalar_tensor(1.5))),
        fine(register_parameter("fine", at::full({3}, 1.0 / 3, at::kDouble))),
        empty(register_parameter("empty", at::zeros({0, 2}))) {}
  at::Tensor forward(const at::Tensor& x) { return (x * factor).sum() + (x.to(at::kDouble) * fine).sum() + empty.sum(); }
  at::Tensor factor, fine, empty;
};

TEST_F(DeepSpeedResume, ScalarsKeepTheirShapeAndTheReceiptNamesWhatIsRounded) {
  const Dict config{{"train_micro_batch_size_per_gpu", 1},
                    {"accelerator", Dict{{"type", "cpu"}}},
                    {"zero_optimization", Dict{{"stage", 1}}},
                    {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-2}}}}}};
  auto model = std::make_shared<OddImpl>();
  {
    const auto engine = initialize(model, {.config = config}).engine;
    engine->backward(engine->forward(at::ones({3})));
    engine->step();
    engine->save_checkpoint(file("run"));
  }
  const auto run = checkpoint::open(file("run"), {});
  const ToDeepSpeedReceipt receipt = write_universal(run, file("out"), {});
  EXPECT_THAT(receipt.left_out, testing::Contains(testing::HasSubstr("fp64 masters and states: fine are rounded")));
  EXPECT_THAT(receipt.left_out, testing::Contains(testing::HasSubstr("without elements: empty, which no group")));
  // DeepSpeed calls chunk(), which takes no scalar.
  const Node written(std::make_shared<PtFile>(PtFile::open(file("out/global_step1_universal/zero/factor/fp32.pt"))));
  EXPECT_EQ(written.at("param").tensor().sizes, std::vector<int64_t>{1});
  import_deepspeed(file("out"), file("again"), {});
  const auto again = checkpoint::open(file("again"), {});
  for (const char* name : {"parameter/factor", "state/exp_avg/factor", "state/exp_avg_sq/factor"}) {
    ASSERT_NE(again.find(name), nullptr) << name;
    EXPECT_EQ(again.find(name)->shape, std::vector<int64_t>{}) << name;
  }
}

}  // namespace
}  // namespace gannet::convert
