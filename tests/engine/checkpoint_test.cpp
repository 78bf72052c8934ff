// CheckpointWriter and resuming an engine, in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "models.h"

namespace gannet::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

// A model with all that a resume must bring back: dropout draws random numbers, batch norm has buffers.
struct BusyImpl : torch::nn::Module {
  BusyImpl() {
    first = register_module("first", torch::nn::Linear(8, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    dropout = register_module("dropout", torch::nn::Dropout(0.3));
    second = register_module("second", torch::nn::Linear(16, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    // The statistics are fp32, and beside them nothing may be 16-bit.
    const at::Tensor normal =
        torch::batch_norm(first(x.to(first->weight.dtype())).to(torch::kFloat), norm->weight.to(torch::kFloat),
                          norm->bias.to(torch::kFloat), norm->running_mean, norm->running_var, is_training(), 0.1, 1e-5, false);
    const at::Tensor hidden = normal.to(first->weight.dtype());
    return torch::mse_loss(second(dropout(hidden)).to(torch::kFloat), y.to(torch::kFloat));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() : folder_(fs::temp_directory_path() / ("gannet_checkpoint_" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
  }
  ~Checkpoint() override { fs::remove_all(folder_); }
  std::string folder() const { return folder_.string(); }

 private:
  fs::path folder_;
};

std::string text_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Training {
  std::shared_ptr<BusyImpl> model;
  std::shared_ptr<Engine<BusyImpl>> engine;
  std::vector<double> losses;

  // `seed`: what a fresh start draws from; a resume must not depend on it.
  explicit Training(const Dict& config, uint64_t seed = 1) {
    torch::manual_seed(seed);
    model = std::make_shared<BusyImpl>();
    engine = initialize(model, {.config = config}).engine;
  }
  void train(int64_t until, int64_t poisoned = -1) {
    for (int64_t step = engine->global_steps(); step < until; ++step) {
      for (int64_t a = 0; a < engine->gradient_accumulation_steps(); ++a) {
        auto [x, y] = make_batch(step * engine->gradient_accumulation_steps() + a, 4);
        at::Tensor loss = engine->forward(x, y);
        losses.push_back(loss.item<double>());
        engine->backward(step == poisoned ? loss * 1e30 : loss);
        engine->step();
      }
    }
  }
  // Everything there is: parameters, masters, buffers.
  at::Tensor all() {
    std::vector<at::Tensor> parts = {flat_parameters(*model)};
    for (const auto& [name, master] : engine->fp32_parameters()) parts.push_back(master.flatten().to(torch::kDouble));
    for (const auto& buffer : model->buffers()) parts.push_back(buffer.flatten().to(torch::kDouble));
    return torch::cat(parts);
  }
};

Dict busy_config(const std::string& kind, const std::string& optimizer = "AdamW") {
  Dict config = config_with(
      {{"gradient_accumulation_steps", 2},
       {"gradient_clipping", 1.0},
       {"scheduler", Dict{{"type", "OneCycle"},
                          {"params", Dict{{"cycle_min_lr", 1e-3}, {"cycle_max_lr", 1e-2}, {"cycle_first_step_size", 7}}}}}});
  if (optimizer == "SGD") {
    config["optimizer"] = Dict{{"type", "SGD"}, {"params", Dict{{"lr", 1e-2}, {"momentum", 0.9}}}};
    config.erase("scheduler");
  }
  if (kind == "bf16") config["bf16"] = Dict{{"enabled", true}};
  if (kind == "fp16")
    config["fp16"] = Dict{{"enabled", true}, {"initial_scale_power", 8}, {"loss_scale_window", 5}, {"hysteresis", 1}};
  return config;
}

TEST_F(Checkpoint, TwentyStepsAndAResumeAreBitwiseFortySteps) {
  for (const char* kind : {"fp32", "bf16", "fp16"})
    for (const char* optimizer : {"AdamW", "SGD"}) {
      SCOPED_TRACE(std::string(kind) + " " + optimizer);
      const Dict config = busy_config(kind, optimizer);
      const int64_t overflow = std::string(kind) == "fp16" ? 12 : -1;  // a skipped step, before the save
      fs::remove_all(folder());
      Training whole(config);
      whole.train(40, overflow);
      {
        Training first(config);
        first.train(20, overflow);
        first.engine->save_checkpoint(folder());
      }
      Training second(config, /*seed=*/99);
      const LoadReceipt receipt = second.engine->load_checkpoint(folder());
      EXPECT_EQ(receipt.global_steps, 20);
      EXPECT_EQ(second.engine->global_samples(), 160);
      second.train(40);
      EXPECT_EQ(second.losses, std::vector<double>(whole.losses.end() - 40, whole.losses.end()));
      EXPECT_TRUE(torch::equal(second.all(), whole.all()));
      EXPECT_EQ(second.engine->loss_scale(), whole.engine->loss_scale());
      EXPECT_EQ(second.engine->get_lr(), whole.engine->get_lr());
      EXPECT_EQ(second.engine->skipped_steps(), whole.engine->skipped_steps());
    }
}

TEST_F(Checkpoint, ASaveBetweenTwoStepsKeepsTheGradientsGatheredSoFar) {
  const Dict config = busy_config("fp32");
  auto half_step = [](Training& run) {
    auto [x, y] = make_batch(500, 4);
    run.engine->backward(run.engine->forward(x, y));
    run.engine->step();
  };
  Training whole(config);
  whole.train(3);
  half_step(whole);
  whole.engine->save_checkpoint(folder());
  half_step(whole);
  Training resumed(config, 99);
  resumed.engine->load_checkpoint(folder());
  half_step(resumed);
  EXPECT_EQ(resumed.engine->global_steps(), 4);
  EXPECT_TRUE(torch::equal(resumed.all(), whole.all()));

  Dict other = config;
  other["gradient_accumulation_steps"] = 3;
  Training changed(other);
  EXPECT_THAT([&] { changed.engine->load_checkpoint(folder()); },
              testing::ThrowsMessage<Error>(HasSubstr("was saved between two steps")));
}

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

TEST_F(Checkpoint, ABrokenNewestIsPassedOverForTheOneBefore) {
  Training run(busy_config("fp32"));
  run.train(1);
  run.engine->save_checkpoint(folder());
  const at::Tensor good = run.all();
  run.train(2);
  run.engine->save_checkpoint(folder());
  const std::string file = folder() + "/global_step2/rank-00000.safetensors";
  {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(fs::file_size(file) / 2));
    stream.put('\x5a');
  }
  Training other(busy_config("fp32"), 99);
  const LoadReceipt receipt = other.engine->load_checkpoint(folder());
  EXPECT_EQ(receipt.tag, "global_step1");
  EXPECT_THAT(receipt.to_string(), AllOf(HasSubstr("passed over global_step2"), HasSubstr("rank-00000.safetensors")));
  EXPECT_TRUE(torch::equal(other.all(), good));
  // Asked for by name, it is an error, and what it left behind cannot be trained on unnoticed.
  EXPECT_THROW(other.engine->load_checkpoint(folder(), {.tag = "global_step2"}), Error);
  auto [x, y] = make_batch(0, 4);
  const auto forward = [&, x = x, y = y] { other.engine->forward(x, y); };
  EXPECT_THAT(forward, testing::ThrowsMessage<Error>(HasSubstr("failed partway")));
  EXPECT_THAT([&] { other.engine->save_checkpoint(folder()); }, testing::ThrowsMessage<Error>(HasSubstr("failed partway")));
  EXPECT_TRUE(other.engine->load_checkpoint(folder()).loaded);
  EXPECT_NO_THROW(other.engine->backward(other.engine->forward(x, y)));
}

TEST_F(Checkpoint, InTheBackgroundItIsTheStateOfTheCallThatIsWritten) {
  Dict config = busy_config("bf16");
  config["gannet"] = Dict{{"checkpoint", Dict{{"async", true}, {"keep", 2}}}};
  Training run(config);
  at::Tensor at_save;
  for (int64_t step = 1; step <= 5; ++step) {
    run.train(step);
    at_save = run.all();
    run.engine->save_checkpoint(folder());
  }
  run.train(8);  // while it is written
  run.engine->wait_for_checkpoint();
  Training other(config, 99);
  EXPECT_EQ(other.engine->load_checkpoint(folder()).tag, "global_step5");
  EXPECT_TRUE(torch::equal(other.all(), at_save));
  EXPECT_FALSE(fs::exists(folder() + "/global_step3")) << "two are kept";
  EXPECT_TRUE(fs::exists(folder() + "/global_step4"));
}

TEST_F(Checkpoint, OtherParameterGroupsTakeTheSchedulesRateAtThePlaceThatWasReached) {
  const Dict config = config_with(
      {{"scheduler", Dict{{"type", "WarmupLR"},
                          {"params", Dict{{"warmup_max_lr", 0.01}, {"warmup_num_steps", 10}, {"warmup_type", "linear"}}}}}});
  Training one(config);
  one.train(4);
  one.engine->save_checkpoint(folder());

  auto model = std::make_shared<BusyImpl>();
  auto two = initialize(model, {.config = config,
                                .model_parameters = {{.parameters = model->first->parameters(), .name = "first"},
                                                     {.parameters = {model->norm->weight, model->norm->bias,
                                                                     model->second->weight, model->second->bias},
                                                      .name = "rest"}}})
                 .engine;
  EXPECT_THAT(two->load_checkpoint(folder()).to_string(), HasSubstr("1 parameter groups, this engine 2"));
  const double reached = one.engine->get_lr()[0];
  EXPECT_GT(reached, 0);
  EXPECT_EQ(two->get_lr(), (std::vector<double>{reached, reached}));
}

TEST_F(Checkpoint, TheProgramsOwnOptimizerIsSavedToo) {
  auto make = [&](uint64_t seed) {
    torch::manual_seed(seed);
    auto model = std::make_shared<BusyImpl>();
    auto adam = std::make_shared<torch::optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(1e-2));
    Dict config = busy_config("bf16");
    config.erase("optimizer");
    config.erase("scheduler");
    return std::make_pair(model, initialize(model, {.config = config, .optimizer = adam}).engine);
  };
  auto train = [](auto& engine, int64_t from, int64_t until) {
    for (int64_t i = from; i < until; ++i) {
      auto [x, y] = make_batch(i, 4);
      engine->backward(engine->forward(x, y));
      engine->step();
    }
  };
  auto [whole_model, whole] = make(1);
  train(whole, 0, 8);
  whole->save_checkpoint(folder());
  train(whole, 8, 16);
  auto [model, engine] = make(99);
  engine->load_checkpoint(folder());
  train(engine, 8, 16);
  EXPECT_TRUE(torch::equal(flat_parameters(*model), flat_parameters(*whole_model)));
}

TEST_F(Checkpoint, ASaveAtTheWrongMomentIsAnError) {
  Training run(busy_config("fp32"));
  EXPECT_THROW(run.engine->save_checkpoint(""), Error);
  auto [x, y] = make_batch(0, 4);
  run.engine->backward(run.engine->forward(x, y));
  EXPECT_THAT([&] { run.engine->save_checkpoint(folder()); },
              testing::ThrowsMessage<Error>(HasSubstr("between backward() and step()")));
}

TEST_F(Checkpoint, ThePluginsInUseAreListedAndNotThoseThatWereTried) {
  Dict config = config_with({});
  config["accelerator"] = Dict{{"type", "auto"}};  // which opens every accelerator's file to look for a device
  config["optimizer"] = adamw();
  config["zero_optimization"] = Dict{{"stage", 1}, {"offload_optimizer", Dict{{"device", "cpu"}}}};
  auto net = make_net();
  auto engine = initialize(net, {.config = config}).engine;
  engine->save_checkpoint(folder());
  const std::string manifest = text_of_file(fs::path(folder()) / "global_step0" / "manifest.json");
  const std::string table = engine->plugin_table();
  for (const char* text : {"accelerator cpu", "comm local", "optimizer AdamW", "offload cpu"})
    EXPECT_THAT(manifest, HasSubstr(text));
  for (const char* text : {"local", "AdamW", "offload"}) EXPECT_THAT(table, HasSubstr(text));
  for (const std::string& text : {manifest, table}) EXPECT_THAT(text, testing::Not(HasSubstr("accelerator fake")));
}

}  // namespace
}  // namespace gannet::test
