// What load_checkpoint() takes from a checkpoint, and what its receipt says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "busy_training.h"

namespace gannet::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

TEST_F(Checkpoint, TheReceiptTellsWhatWasLoaded) {
  Training run(busy_config("bf16"));
  run.train(3);
  const SaveReceipt saved =
      run.engine->save_checkpoint(folder(), {.client_state = {{{"epoch", 7}}, {{"table", torch::arange(5)}}}});
  EXPECT_EQ(saved.path, folder() + "/global_step3");
  EXPECT_GT(saved.bytes, 1000u);
  Training other(busy_config("bf16"), 99);
  const LoadReceipt receipt = other.engine->load_checkpoint(folder());
  EXPECT_TRUE(receipt.loaded);
  EXPECT_EQ(receipt.tag, "global_step3");
  EXPECT_EQ(receipt.parameters, 6);
  EXPECT_EQ(receipt.buffers, 3);
  EXPECT_EQ(receipt.states, 12);
  EXPECT_EQ(receipt.client_state.document.find("epoch")->as_int(), 7);
  ASSERT_THAT(receipt.client_state.tensors, SizeIs(1));
  EXPECT_TRUE(torch::equal(receipt.client_state.tensors[0].second, torch::arange(5)));
  EXPECT_THAT(receipt.to_string(),
              AllOf(HasSubstr("6 parameters, 3 buffers, 12 optimizer states; step 3"), HasSubstr("24 samples seen")));
}

TEST_F(Checkpoint, ACheckpointOfAnotherModelIsRefusedWithTheFirstDifferencesAndNothingIsTouched) {
  Training run(busy_config("fp32"));
  run.train(2);
  run.engine->save_checkpoint(folder());
  auto net = make_net(5, 20);
  auto engine = initialize(net, {.config = config_with({})}).engine;
  const at::Tensor before = flat_parameters(*net);
  EXPECT_THAT(
      [&] { engine->load_checkpoint(folder()); },
      testing::ThrowsMessage<Error>(AllOf(HasSubstr("does not fit this engine"),
                                          HasSubstr("shape of parameter/first.weight: [16, 8] in the checkpoint, [20, 8] here"),
                                          HasSubstr("unexpected in the checkpoint: "))));
  EXPECT_TRUE(torch::equal(flat_parameters(*net), before));
  auto [x, y] = make_batch(0, 4);
  engine->backward(engine->forward(x, y));
  EXPECT_TRUE(engine->step().applied) << "training continues";
}

TEST_F(Checkpoint, StrictnessStatesAndModuleOnlyAreTheCallersChoice) {
  Training run(busy_config("fp32"));
  run.train(4);
  run.engine->save_checkpoint(folder());

  Training weights(busy_config("fp32"), 99);
  const LoadReceipt only = weights.engine->load_checkpoint(folder(), {.load_module_only = true});
  EXPECT_TRUE(torch::equal(weights.all(), run.all()));
  EXPECT_EQ(only.states, 0);
  EXPECT_EQ(weights.engine->global_steps(), 0);

  Training stateless(busy_config("fp32"), 99);
  EXPECT_EQ(stateless.engine->load_checkpoint(folder(), {.load_optimizer_states = false}).states, 0);
  EXPECT_EQ(stateless.engine->global_steps(), 4);

  Training sgd(busy_config("fp32", "SGD"), 99);
  EXPECT_THAT([&] { sgd.engine->load_checkpoint(folder()); },
              testing::ThrowsMessage<Error>(AllOf(HasSubstr("state/"), HasSubstr("load_optimizer_states = false"))));
  EXPECT_TRUE(sgd.engine->load_checkpoint(folder(), {.load_optimizer_states = false}).loaded);

  // Another head: what is missing stays, and the receipt says so.
  struct Renamed : torch::nn::Module {
    Renamed() {
      first = register_module("first", torch::nn::Linear(8, 16));
      head = register_module("head", torch::nn::Linear(16, 4));
    }
    at::Tensor forward(const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(head(first(x)), y); }
    torch::nn::Linear first{nullptr}, head{nullptr};
  };
  auto renamed = std::make_shared<Renamed>();
  auto engine = initialize(renamed, {.config = config_with({})}).engine;
  const at::Tensor head = renamed->head->weight.detach().clone();
  const LoadReceipt loose = engine->load_checkpoint(folder(), {.load_module_strict = false});
  EXPECT_EQ(loose.parameters, 2);
  EXPECT_TRUE(torch::equal(renamed->head->weight, head));
  EXPECT_TRUE(torch::equal(renamed->first->weight, run.model->first->weight));
  EXPECT_THAT(loose.to_string(), AllOf(HasSubstr("missing in the checkpoint, left as it is: parameter/head.weight"),
                                       HasSubstr("unexpected in the checkpoint, not used: parameter/second.weight")));
}

// A run that loads only weights is a new run: it keeps its own newest checkpoints, and does not
// remove the one it began from.
TEST_F(Checkpoint, OnlyARunThatGoesOnCountsFormerCheckpointsAsItsOwn) {
  Dict config = busy_config("fp32");
  config["gannet"] = Dict{{"checkpoint", Dict{{"keep", 1}}}};
  for (const bool goes_on : {false, true}) {
    fs::remove_all(folder());
    {
      Training run(config);
      run.train(4);
      run.engine->save_checkpoint(folder(), {.tag = "former"});
    }
    Training other(config, 99);
    other.engine->load_checkpoint(folder(), {.load_module_only = !goes_on});
    for (const char* tag : {"a", "b"}) other.engine->save_checkpoint(folder(), {.tag = tag});
    EXPECT_EQ(fs::exists(folder() + "/former"), !goes_on);
    EXPECT_FALSE(fs::exists(folder() + "/a"));
  }
}

TEST_F(Checkpoint, TheProgramMayPutTheWeightsIntoTheModuleItself) {
  Training run(busy_config("bf16"));
  run.train(2);
  run.engine->save_checkpoint(folder());
  Training other(busy_config("bf16"), 99);
  other.engine->load_checkpoint(
      folder(), {.load_module_only = true, .custom_load_fn = [](const auto& source, torch::nn::Module& destination) {
                   for (auto& entry : destination.named_parameters()) entry.value().copy_(source.at(entry.key()));
                 }});
  EXPECT_TRUE(torch::equal(flat_parameters(*other.model), flat_parameters(*run.model)));
  for (const auto& [name, master] : other.engine->fp32_parameters())
    EXPECT_TRUE(torch::equal(master, other.model->named_parameters()[name].to(torch::kFloat))) << name;
}

TEST_F(Checkpoint, WhatTheProgramAddsIsGivenBack) {
  int64_t position = 42;
  Training run(busy_config("fp32"));
  run.engine->add_state("replay", [&] { return Value(position); }, [&](const Value& value) { position = value.as_int(); });
  EXPECT_THROW(run.engine->add_state("replay", [] { return Value(); }, [](const Value&) {}), Error);
  run.engine->save_checkpoint(folder(), {.tag = "here"});
  position = 0;
  const LoadReceipt receipt = run.engine->load_checkpoint(folder());
  EXPECT_EQ(position, 42);
  Training without(busy_config("fp32"));
  EXPECT_THAT(without.engine->load_checkpoint(folder()).to_string(), HasSubstr("state 'replay' of the checkpoint is not used"));
}

TEST_F(Checkpoint, NothingThereIsAnErrorUnlessTheProgramSaidIfPresent) {
  Training run(busy_config("fp32"));
  EXPECT_THAT([&] { run.engine->load_checkpoint(folder()); }, testing::ThrowsMessage<Error>(HasSubstr(folder())));
  const LoadReceipt receipt = run.engine->load_checkpoint(folder(), {.if_present = true});
  EXPECT_FALSE(receipt.loaded);
  EXPECT_THAT(receipt.to_string(), HasSubstr("the run starts from the beginning"));
  run.engine->save_checkpoint(folder(), {.tag = "step_a"});
  EXPECT_THAT([&] { run.engine->load_checkpoint(folder(), {.tag = "step_b"}); },
              testing::ThrowsMessage<Error>(HasSubstr("step_a")));
}

}  // namespace
}  // namespace gannet::test
