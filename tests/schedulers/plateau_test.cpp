// ReduceLROnPlateau against torch::optim's, and a stateful schedule in an engine: stepped only by
// the program's call, saved and resumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/sgd.h>

#include "engine/models.h"
#include "plugin/support.h"

namespace gannet::test {
namespace {

using ::testing::HasSubstr;

Dict plateau_config(const Dict& params) {
  Dict config = config_with({});
  config["optimizer"] = Dict{{"type", "SGD"}, {"params", Dict{{"lr", 0.1}}}};
  config["scheduler"] = Dict{{"type", "ReduceLROnPlateau"}, {"params", params}};
  return config;
}

auto engine_with(const Dict& params) { return initialize(make_net(), {.config = plateau_config(params)}); }

// Better, then level, then worse, then better again.
double metric_of(int call) {
  return call < 12 ? 1.0 / (call + 1) : call < 60 ? 0.08 + 1e-4 * (call % 5) : 0.08 - 1e-3 * (call - 60);
}

TEST(Plateau, GivesTheRatesOfTorchs) {
  struct Case {
    Dict params;
    torch::optim::ReduceLROnPlateauScheduler::SchedulerMode mode = torch::optim::ReduceLROnPlateauScheduler::min;
    torch::optim::ReduceLROnPlateauScheduler::ThresholdMode threshold_mode = torch::optim::ReduceLROnPlateauScheduler::rel;
    float factor = 0.1f;
    int patience = 10, cooldown = 0;
    double threshold = 1e-4;
    float min_lr = 0;
  };
  using Torchs = torch::optim::ReduceLROnPlateauScheduler;
  const std::vector<Case> cases = {
      {Dict{}},
      {Dict{{"factor", 0.5}, {"patience", 3}, {"cooldown", 2}}, Torchs::min, Torchs::rel, 0.5f, 3, 2},
      {Dict{{"mode", "max"}, {"factor", 0.5}, {"patience", 2}, {"threshold", 0.01}}, Torchs::max, Torchs::rel, 0.5f, 2, 0, 0.01},
      {Dict{{"factor", 0.5}, {"patience", 2}, {"threshold", 0.01}, {"threshold_mode", "abs"}}, Torchs::min, Torchs::abs, 0.5f, 2,
       0, 0.01},
      {Dict{{"factor", 0.25}, {"patience", 0}, {"min_lr", 1e-3}}, Torchs::min, Torchs::rel, 0.25f, 0, 0, 1e-4, 1e-3f},
  };
  for (const Case& each : cases) {
    torch::optim::SGD reference({torch::zeros({1}, torch::requires_grad())}, torch::optim::SGDOptions(0.1));
    Torchs torchs(reference, each.mode, each.factor, each.patience, each.threshold, each.threshold_mode, each.cooldown,
                  {each.min_lr}, 1e-8);
    auto [engine, optimizer, loader, scheduler] = engine_with(each.params);
    for (int call = 0; call < 120; ++call) {
      torchs.step(static_cast<float>(metric_of(call)));
      scheduler->step(metric_of(call));
      EXPECT_NEAR(engine->get_lr()[0] / reference.param_groups()[0].options().get_lr(), 1, 1e-5)
          << Value(each.params).to_json() << " call " << call;
    }
  }
}

// PyTorch's rule; LibTorch's own class compares with the best metric times the threshold here.
TEST(Plateau, WithALargerMetricThatIsBetterTheThresholdIsAddedToTheBest) {
  auto [engine, optimizer, loader, scheduler] =
      engine_with(Dict{{"mode", "max"}, {"factor", 0.5}, {"patience", 1}, {"threshold", 0.1}, {"threshold_mode", "abs"}});
  const std::vector<std::pair<double, double>> calls = {{1.0, 0.1}, {1.05, 0.1}, {1.11, 0.1},
                                                        {1.2, 0.1}, {1.1, 0.05}, {1.3, 0.05}};
  for (const auto& [metric, rate] : calls) {
    scheduler->step(metric);
    EXPECT_DOUBLE_EQ(engine->get_lr()[0], rate) << metric;
  }
}

// As in torch: multiplies the current rate, including one that the program set.
TEST(Plateau, ReducesTheRateThatTheProgramSet) {
  auto [engine, optimizer, loader, scheduler] = engine_with(Dict{{"factor", 0.5}, {"patience", 0}});
  scheduler->step(1.0);
  engine->set_lr(0.01);
  scheduler->step(0.5);  // better
  EXPECT_EQ(engine->get_lr()[0], 0.01);
  scheduler->step(0.6);
  EXPECT_DOUBLE_EQ(engine->get_lr()[0], 0.005);
}

TEST(Plateau, DoesNotAdvanceWithTheUpdates) {
  auto [engine, optimizer, loader, scheduler] = engine_with(Dict{{"patience", 0}});
  for (int step = 0; step < 5; ++step) {
    auto [x, y] = make_batch(step, 4);
    engine->backward(engine->forward(x, y));
    engine->step();
  }
  EXPECT_EQ(scheduler->position(), 0);
  EXPECT_EQ(engine->get_lr()[0], 0.1);
}

TEST(Plateau, ResumesWhereItWasSaved) {
  const TemporaryFolder folder;
  const Dict params{{"factor", 0.5}, {"patience", 3}, {"cooldown", 1}};
  auto straight = engine_with(params);
  std::vector<double> rates;
  for (int call = 0; call < 80; ++call) {
    if (call == 31) straight.engine->save_checkpoint(folder.string());
    straight.scheduler->step(metric_of(call));
    rates.push_back(straight.engine->get_lr()[0]);
  }
  auto resumed = engine_with(params);
  resumed.engine->load_checkpoint(folder.string());
  EXPECT_EQ(resumed.scheduler->position(), 31);
  for (int call = 31; call < 80; ++call) {
    resumed.scheduler->step(metric_of(call));
    EXPECT_EQ(resumed.engine->get_lr()[0], rates[static_cast<size_t>(call)]) << call;
  }
}

template <class Body>
std::string said(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Plateau, WantsAFiniteMetric) {
  auto [engine, optimizer, loader, scheduler] = engine_with({});
  EXPECT_THAT(said([&] { scheduler->step(); }), HasSubstr("without one"));
  EXPECT_THAT(said([&] { scheduler->step(std::nan("")); }), HasSubstr("with nan"));
  EXPECT_THAT(said([&] { scheduler->step_to(7); }), HasSubstr("depends on what came before"));
  EXPECT_EQ(scheduler->position(), 0);
  EXPECT_THAT(said([] { engine_with(Dict{{"min_lr", List{0.1, 0.2}}}); }), HasSubstr("expected 1 values for 'min_lr'"));
}

TEST(Plateau, AScheduleOfStepsTakesNoMetric) {
  Dict config = plateau_config({});
  config["scheduler"] = Dict{{"type", "WarmupLR"}};
  auto made = initialize(make_net(), {.config = config});
  EXPECT_THAT(said([&] { made.scheduler->step(0.5); }), HasSubstr("follows no metric"));
}

}  // namespace
}  // namespace gannet::test
