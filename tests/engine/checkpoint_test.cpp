// CheckpointWriter and resuming an engine, in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "busy_training.h"

namespace gannet::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string text_of_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
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
