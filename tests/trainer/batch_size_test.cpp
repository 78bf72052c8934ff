// auto_find_batch_size: the size that is found, and that a run with it is, to the bit, one that was started with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tokens.h"

namespace {

using gannet::Error;
using gannet::ErrorCode;
using gannet::Trainer;
using gannet::TrainingArguments;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using trainer_test::make_samples;
namespace fs = std::filesystem;

// Dropout and a running mean: random numbers and a buffer that a try must leave as they were. Above `limit` samples memory runs
// out.
struct LimitedImpl : torch::nn::Module {
  LimitedImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(trainer_test::kClasses, 12));
    mean = register_buffer("mean", torch::zeros({12}));
    out = register_module("out", torch::nn::Linear(12, trainer_test::kClasses));
  }
  at::Tensor logits(const at::Tensor& tokens) {
    tried.push_back(tokens.size(0));
    if (writes) {
      torch::NoGradGuard no_grad;
      out->bias.mul_(1);
    }
    if (fails_with) throw std::runtime_error(fails_with);
    const bool is_over = tokens.size(0) > limit;
    // Nodes older than the one that fails: LibTorch leaves them, with the weights that they hold, in the thread's queue.
    at::Tensor x = embedding(tokens), older;
    if (is_over && place == "backward") older = out(x);
    if (is_training()) {
      const torch::NoGradGuard no_grad;
      mean.lerp_(x.mean(at::IntArrayRef{0, 1}).to(mean.scalar_type()), 0.1);
    }
    x = x - mean.to(x.scalar_type()).clone();
    if (is_over && place == "host") at::empty({int64_t{1} << 55});
    if (is_over && place == "device") TORCH_CHECK_WITH(OutOfMemoryError, false, "the card is full");
    if (is_over && place == "bad_alloc") throw std::bad_alloc();
    x = out(torch::dropout(torch::gelu(x), 0.1, is_training()));
    if (is_over && place == "backward" && x.requires_grad())
      x.register_hook([](const at::Tensor&) -> at::Tensor { TORCH_CHECK_WITH(OutOfMemoryError, false, "the card is full"); });
    return older.defined() ? x + older : x;
  }
  at::Tensor forward(const at::Tensor& tokens) { return logits(tokens); }
  torch::nn::Embedding embedding{nullptr};
  at::Tensor mean;
  torch::nn::Linear out{nullptr};
  int64_t limit = 1000;
  std::string place = "host";
  const char* fails_with = nullptr;
  bool writes = false;
  std::vector<int64_t> tried;  // samples of each forward
};

struct Ran {
  std::vector<std::pair<std::string, at::Tensor>> weights;
  gannet::TrainerState state;
  std::vector<int64_t> tried;
  std::string rates;
  at::Tensor drawn;  // from the default generator, afterwards
};

class BatchSize : public testing::Test {
 protected:
  void SetUp() override {
    folder = fs::temp_directory_path() / ("gannet_batch_size_" + std::to_string(getpid()));
    fs::remove_all(folder);
    gannet::set_log_sink([this](gannet::LogLevel, const std::string& line) { log += line + "\n"; });
  }
  void TearDown() override {
    gannet::set_log_sink({});
    fs::remove_all(folder);
  }
  TrainingArguments arguments(int64_t size, bool finds) const {
    TrainingArguments a;
    a.output_dir = folder / "run";
    a.per_device_train_batch_size = size;
    a.auto_find_batch_size = finds;
    a.gradient_accumulation_steps = 2;
    a.num_train_epochs = 2;
    a.learning_rate = 0.01;
    a.warmup_steps = 0.3;
    a.logging_steps = 1;
    a.save_strategy = "no";
    a.disable_tqdm = true;
    return a;
  }
  Ran run(TrainingArguments a, int64_t limit, const std::string& place = "host") {
    torch::manual_seed(3);
    auto model = std::make_shared<LimitedImpl>();
    model->limit = limit;
    model->place = place;
    Trainer trainer(model, a, {.train_dataset = make_samples(50)});
    trainer.train();
    Ran ran{trainer.engine().fp32_state(), trainer.state(), model->tried, "", torch::rand({4})};
    for (const auto& entry : ran.state.log_history)
      if (const gannet::Value* loss = entry.find("loss"))
        ran.rates += loss->to_json() + " at " + entry.find("learning_rate")->to_json() + "\n";
    return ran;
  }
  static void expect_same(const Ran& found, const Ran& direct) {
    EXPECT_EQ(found.state.train_batch_size, direct.state.train_batch_size);
    EXPECT_EQ(found.state.max_steps, direct.state.max_steps);
    EXPECT_EQ(found.rates, direct.rates);
    ASSERT_EQ(found.weights.size(), direct.weights.size());
    for (size_t i = 0; i < found.weights.size(); ++i)
      EXPECT_TRUE(torch::equal(found.weights[i].second, direct.weights[i].second)) << found.weights[i].first;
    EXPECT_TRUE(torch::equal(found.drawn, direct.drawn)) << "random numbers";
  }
  std::string error_of(const std::function<void()>& call, ErrorCode code) const {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }
  fs::path folder;
  std::string log;
};

TEST_F(BatchSize, TheRunIsTheOneThatBeginsWithTheSizeThatWasFound) {
  const std::vector<std::string> configs = {
      "{}", R"({"bf16": {"enabled": true}})", R"({"fp16": {"enabled": true}, "zero_optimization": {"stage": 1}})",
      R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})"};
  const std::vector<std::string> places = {"host", "backward", "device", "bad_alloc"};
  for (size_t i = 0; i < configs.size(); ++i) {
    SCOPED_TRACE(configs[i] + " " + places[i]);
    auto a = arguments(9, true), b = arguments(6, false);
    a.deepspeed = b.deepspeed = configs[i];
    const Ran found = run(a, 6, places[i]);
    EXPECT_EQ(std::vector(found.tried.begin(), found.tried.begin() + 5), (std::vector<int64_t>{9, 8, 7, 6, 6})) << "times 0.9";
    expect_same(found, run(b, 6));
    EXPECT_FALSE(fs::exists(folder / "run" / ".auto_find_batch_size"));
  }
  EXPECT_THAT(log, HasSubstr("no memory for micro-batches of 9 samples ("));
  EXPECT_THAT(log, HasSubstr("auto_find_batch_size: 6 samples in a micro-batch of each rank, 12 in an update"));
}

TEST_F(BatchSize, ASizeThatFitsIsKept) {
  const Ran found = run(arguments(6, true), 6);
  expect_same(found, run(arguments(6, false), 6));
  EXPECT_THAT(log, testing::Not(HasSubstr("no memory for")));
}

TEST_F(BatchSize, SizesOfTheConfigFollow) {
  auto a = arguments(9, true);
  a.deepspeed = R"({"train_batch_size": 18, "train_micro_batch_size_per_gpu": 9})";
  expect_same(run(a, 6), run(arguments(6, false), 6));
}

// With samples that differ in length, the largest micro-batch is tried.
TEST_F(BatchSize, TheLargestOfTheFirstMicroBatchesIsTried) {
  auto a = arguments(2, true);
  a.train_sampling_strategy = "sequential";
  a.gradient_accumulation_steps = 1;
  std::vector<int64_t> lengths;
  gannet::Collate<gannet::Example> pad = [&lengths](std::vector<gannet::Example> samples) {
    const int64_t length = samples[0].data[0].item<int64_t>() == 9 ? 5 : 3;
    lengths.push_back(length);
    std::vector<at::Tensor> data, target;
    for (const auto& sample : samples) {
      data.push_back(sample.data.narrow(0, 0, length));
      target.push_back(sample.target.narrow(0, 0, length));
    }
    return gannet::Example(torch::stack(data), torch::stack(target));
  };
  auto model = std::make_shared<LimitedImpl>();
  int64_t longest = 0;
  const auto loss = [&](gannet::Engine<LimitedImpl>& engine, gannet::Example& batch) -> gannet::BatchLoss {
    longest = std::max(longest, batch.data.size(1));
    return engine.forward(batch.data).square().mean();
  };
  Trainer trainer(model, a, {.train_dataset = make_samples(20), .data_collator = pad, .compute_loss = loss});
  trainer.engine();
  EXPECT_EQ(model->tried.size(), 1u);
  EXPECT_EQ(longest, 5);
  EXPECT_GT(lengths.size(), 4u);
}

TEST_F(BatchSize, NothingFits) {
  EXPECT_THAT(error_of([&] { run(arguments(3, true), 0); }, ErrorCode::kOutOfMemory),
              HasSubstr("auto_find_batch_size: there is no memory for one sample (there is not enough memory in forward"));
  EXPECT_FALSE(fs::exists(folder / "run" / ".auto_find_batch_size"));
}

TEST_F(BatchSize, AnotherErrorOfTheModelLeavesAsItIs) {
  auto model = std::make_shared<LimitedImpl>();
  model->fails_with = "no such sample";
  Trainer trainer(model, arguments(4, true), {.train_dataset = make_samples(20)});
  EXPECT_THROW(trainer.train(), std::runtime_error);
  model->fails_with = nullptr;
  trainer.train();
  EXPECT_EQ(trainer.state().global_step, 6);
}

TEST_F(BatchSize, AnEngineThatTheProgramHasStaysTheTrainers) {
  auto model = std::make_shared<LimitedImpl>();
  model->limit = 6;
  Trainer trainer(model, arguments(9, true), {.train_dataset = make_samples(20)});
  auto& engine = trainer.engine();
  EXPECT_EQ(engine.train_micro_batch_size_per_gpu(), 6);
  trainer.train();
  EXPECT_EQ(&engine, &trainer.engine());
  EXPECT_EQ(engine.global_steps(), trainer.state().global_step);
}

TEST_F(BatchSize, AResumeTakesTheSizeOfItsCheckpoint) {
  auto direct = arguments(6, false);
  const Ran whole = run(direct, 1000);
  auto a = arguments(9, true);
  a.save_strategy = "steps";
  a.save_steps = 3;
  run(a, 6);
  fs::remove_all(folder / "run" / "checkpoint-10");
  for (const std::string& from : {std::string("last"), (folder / "run" / "checkpoint-3").string()}) {
    SCOPED_TRACE(from);
    auto b = arguments(9, true);
    b.resume_from_checkpoint = from;
    const Ran resumed = run(b, 1000);
    EXPECT_EQ(resumed.state.train_batch_size, 6);
    EXPECT_THAT(resumed.tried, testing::Not(Contains(9))) << "nothing is tried";
    for (size_t i = 0; i < whole.weights.size(); ++i)
      EXPECT_TRUE(torch::equal(resumed.weights[i].second, whole.weights[i].second)) << whole.weights[i].first;
  }
}

TEST_F(BatchSize, MemoryThatRunsOutLaterSaysWhatWasTried) {
  auto model = std::make_shared<LimitedImpl>();
  const auto shrink = [&](gannet::Engine<LimitedImpl>& engine, gannet::Example& batch) -> gannet::BatchLoss {
    if (engine.global_steps() == 1) model->limit = 2;
    return engine.forward(batch.data).square().mean();
  };
  Trainer trainer(model, arguments(4, true), {.train_dataset = make_samples(20), .compute_loss = shrink});
  EXPECT_THAT(
      error_of([&] { trainer.train(); }, ErrorCode::kOutOfMemory),
      HasSubstr("memory for the micro-batches of 4 samples that auto_find_batch_size tried, but not in update 2: there is "
                "not enough memory in forward"));
}

TEST_F(BatchSize, WhatCannotBeTriedIsRefused) {
  const auto refusal = [&](TrainingArguments a, gannet::TrainerParts<LimitedImpl> parts, bool writes = false) {
    auto model = std::make_shared<LimitedImpl>();
    model->writes = writes;
    if (parts.optimizer) parts.optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.1);
    Trainer trainer(model, a, std::move(parts));
    return error_of([&] { trainer.train(); }, ErrorCode::kUnsupported);
  };
  auto a = arguments(4, true);
  a.max_steps = 2;
  EXPECT_THAT(refusal(a, {.train_dataset = make_samples(8)}, true), HasSubstr("forward writes its parameter 'out.bias'"));
  EXPECT_THAT(refusal(a, {.train_dataset = []() -> std::optional<gannet::Example> { return std::nullopt; }}),
              HasSubstr("auto_find_batch_size with a stream"));
  auto any = std::make_shared<torch::optim::SGD>(std::vector<at::Tensor>{torch::zeros({1})}, 0.1);
  EXPECT_THAT(refusal(a, {.train_dataset = make_samples(8), .optimizer = any}), HasSubstr("an optimizer object"));
  a.deepspeed = R"({"zero_optimization": {"stage": 3}})";
  EXPECT_THAT(refusal(a, {.train_dataset = make_samples(8)}), HasSubstr("auto_find_batch_size at ZeRO stage 3"));
}

}  // namespace
