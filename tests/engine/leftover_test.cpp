// gannet.leftover_micro_batches: what becomes of an epoch's last micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/models.h"

namespace {

using gannet::Dict;
using gannet::test::adamw;
using gannet::test::make_net;

std::vector<gannet::Example> samples(int64_t count) {
  std::vector<gannet::Example> made;
  for (int64_t i = 0; i < count; ++i) {
    const auto [x, y] = gannet::test::make_batch(i, 1);
    made.emplace_back(x[0], y[0]);
  }
  return made;
}

Dict config_of(const char* leftover) {
  return Dict{{"train_micro_batch_size_per_gpu", 1},
              {"gradient_accumulation_steps", 4},
              {"optimizer", adamw()},
              {"gannet", Dict{{"shuffle", false}, {"leftover_micro_batches", leftover}}}};
}

TEST(LeftoverMicroBatches, AreCarriedUnlessAskedOtherwise) {
  auto [engine, optimizer, loader, scheduler] =
      gannet::initialize(make_net(), {.config = config_of("carry"), .training_data = samples(6)});
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : *loader) {
      engine->backward(engine->forward(batch.data, batch.target));
      engine->step();
    }
  EXPECT_EQ(engine->global_steps(), 3);
}

// Six samples in steps of four micro-batches: four, two, four, two.
struct Trained {
  std::vector<double> norms;
  at::Tensor parameters;
};

// Each step as one plain LibTorch step over the samples that it holds, its loss their mean.
Trained reference(int epochs) {
  auto net = make_net();
  const auto data = samples(6);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0.1));
  Trained trained;
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (const auto& [begin, end] : {std::pair<size_t, size_t>{0, 4}, {4, 6}}) {
      optimizer.zero_grad();
      std::vector<at::Tensor> x, y;
      for (size_t i = begin; i < end; ++i) {
        x.push_back(data[i].data);
        y.push_back(data[i].target);
      }
      net->forward(torch::stack(x), torch::stack(y)).backward();
      trained.norms.push_back(torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0));  // the config's default
      optimizer.step();
    }
  trained.parameters = gannet::test::flat_parameters(*net);
  return trained;
}

// `saved_after`: a second program resumes after so many micro-batches; -1: one program does it all.
Trained by_engine(int epochs, int64_t stage, int saved_after = -1) {
  const std::string folder = testing::TempDir() + "gannet_leftover_" + std::to_string(getpid());
  Dict config = config_of("step");
  config["zero_optimization"] = Dict{{"stage", stage}};
  Trained trained;
  int done = 0;
  for (const bool resumes : {false, true}) {
    if (resumes && saved_after < 0) break;
    auto net = make_net();
    auto [engine, optimizer, loader, scheduler] = gannet::initialize(net, {.config = config, .training_data = samples(6)});
    if (resumes) engine->load_checkpoint(folder);
    bool is_saved = false;
    while (!is_saved && done < 6 * epochs) {
      for (auto& batch : *loader) {
        engine->backward(engine->forward(batch.data, batch.target));
        if (engine->step().boundary) trained.norms.push_back(engine->get_global_grad_norm().value());
        if (++done != saved_after) continue;
        engine->save_checkpoint(folder);
        is_saved = true;
        break;
      }
    }
    if (is_saved) continue;
    EXPECT_EQ(engine->global_steps(), 2 * epochs);
    trained.parameters = torch::cat([&] {
      std::vector<at::Tensor> parts;
      for (const auto& [name, value] : engine->fp32_parameters()) parts.push_back(value.to(torch::kDouble).flatten());
      return parts;
    }());
  }
  std::filesystem::remove_all(folder);
  return trained;
}

TEST(LeftoverMicroBatches, AsAStepTheyAreAWholeShorterStep) {
  const Trained expected = reference(3);
  for (const int64_t stage : {0, 2, 3}) {
    SCOPED_TRACE(stage);
    const Trained found = by_engine(3, stage), again = by_engine(3, stage);
    ASSERT_EQ(found.norms.size(), expected.norms.size());
    for (size_t i = 0; i < found.norms.size(); ++i) EXPECT_NEAR(found.norms[i], expected.norms[i], 1e-5 * expected.norms[i]) << i;
    EXPECT_LT((found.parameters - expected.parameters).abs().max().item<double>(), 2e-5);
    EXPECT_TRUE(at::equal(found.parameters, again.parameters));
  }
}

TEST(LeftoverMicroBatches, AResumeWithinAShorterStepEndsItWhereItWouldHaveEnded) {
  const Trained whole = by_engine(2, 0);
  for (const int after : {2, 4, 5, 6, 11}) {
    SCOPED_TRACE(after);
    const Trained resumed = by_engine(2, 0, after);
    ASSERT_EQ(resumed.norms.size(), whole.norms.size());
    if (after == 4 || after == 6) {
      EXPECT_EQ(resumed.norms, whole.norms);
      EXPECT_TRUE(at::equal(resumed.parameters, whole.parameters));
      continue;
    }
    // The gradients from before the save and those after it are two sums, whose rounding is another one.
    for (size_t i = 0; i < whole.norms.size(); ++i) EXPECT_NEAR(resumed.norms[i], whole.norms[i], 1e-6 * whole.norms[i]) << i;
    EXPECT_LT((resumed.parameters - whole.parameters).abs().max().item<double>(), 1e-6);
  }
}

TEST(LeftoverMicroBatches, AsAStepNeedAnEndThatIsKnown) {
  auto made = gannet::initialize(make_net(), {.config = config_of("step")});
  const auto [x, y] = gannet::test::make_batch(0, 1);
  const at::Tensor loss = made.engine->forward(x, y);
  EXPECT_THROW(made.engine->backward(loss), gannet::Error);
  made.engine->end_steps_with_epochs_of(gannet::make_loader(gannet::Dataset<>(samples(6)), made.engine->loader_options()));
  made.engine->backward(made.engine->forward(x, y));
}

}  // namespace
