#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

// Plain reference for the engine: autograd, averaged and clipped gradients, AdamW in double.
struct Reference {
  explicit Reference(std::shared_ptr<NetImpl> net) : net(std::move(net)) {
    for (auto& parameter : this->net->parameters()) {
      m.push_back(torch::zeros_like(parameter, torch::kDouble));
      v.push_back(torch::zeros_like(parameter, torch::kDouble));
    }
  }
  double step(const std::vector<std::pair<at::Tensor, at::Tensor>>& micro_batches, double lr, double decay, double clip) {
    std::vector<at::Tensor> parameters = net->parameters(), gradients;
    for (auto& [x, y] : micro_batches) {
      auto parts = torch::autograd::grad({net->forward(x, y)}, parameters);
      for (size_t i = 0; i < parts.size(); ++i) {
        const at::Tensor part = parts[i].to(torch::kDouble) / double(micro_batches.size());
        if (i < gradients.size())
          gradients[i] += part;
        else
          gradients.push_back(part);
      }
    }
    double squares = 0;
    for (auto& g : gradients) squares += g.square().sum().item<double>();
    const double norm = std::sqrt(squares);
    const double factor = clip > 0 && norm + 1e-6 > clip ? clip / (norm + 1e-6) : 1;
    ++t;
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor g = gradients[i] * factor;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const at::Tensor direction = (m[i] / (1 - std::pow(0.9, t))) / ((v[i] / (1 - std::pow(0.999, t))).sqrt() + 1e-8);
      const at::Tensor value = parameters[i].to(torch::kDouble);
      parameters[i].copy_(value - lr * (direction + decay * value));
    }
    return norm;
  }
  std::shared_ptr<NetImpl> net;
  std::vector<at::Tensor> m, v;
  int t = 0;
};

double distance(const at::Tensor& a, const at::Tensor& b) { return ((a - b).norm() / b.norm()).item<double>(); }

TEST(Engine, TrainsAsThePlainLoopDoesWithAccumulationAndClipping) {
  for (const int64_t accumulation : {1, 3}) {
    auto net = make_net();
    Reference reference(make_net());
    auto [engine, optimizer, loader, scheduler] =
        initialize(net, {.config = config_with({{"gradient_accumulation_steps", accumulation}, {"gradient_clipping", 0.5}})});
    EXPECT_EQ(loader, nullptr);
    for (int step = 0; step < 10; ++step) {
      std::vector<std::pair<at::Tensor, at::Tensor>> batches;
      for (int64_t a = 0; a < accumulation; ++a) {
        batches.push_back(make_batch(step * accumulation + a, 4));
        EXPECT_EQ(engine->is_gradient_accumulation_boundary(), a + 1 == accumulation);
        engine->backward(engine->forward(batches.back().first, batches.back().second));
        const StepResult result = engine->step();
        EXPECT_EQ(result.applied, a + 1 == accumulation) << result.reason;
      }
      const double norm = reference.step(batches, 1e-2, 0.1, 0.5);
      EXPECT_NEAR(*engine->get_global_grad_norm(), norm, 1e-5 * norm);
    }
    EXPECT_LT(distance(flat_parameters(*net), flat_parameters(*reference.net)), 2e-6);
    EXPECT_EQ(engine->global_steps(), 10);
    EXPECT_EQ(engine->micro_steps(), 10 * accumulation);
    EXPECT_EQ(engine->global_samples(), 40 * accumulation);
  }
}

TEST(Engine, IsBitwiseRepeatable) {
  auto run = [] {
    auto net = make_net();
    auto engine = initialize(net, {.config = config_with({})}).engine;
    for (int step = 0; step < 5; ++step) {
      auto [x, y] = make_batch(step, 4);
      engine->backward(engine->forward(x, y));
      engine->step();
    }
    return flat_parameters(*net);
  };
  EXPECT_TRUE(torch::equal(run(), run()));
}

TEST(Engine, SeveralBackwardsBeforeAStepAddUp) {
  auto [x, y] = make_batch(0, 4);
  auto together = make_net(), apart = make_net();
  auto first = initialize(together, {.config = config_with({})}).engine;
  auto second = initialize(apart, {.config = config_with({})}).engine;
  first->backward(first->forward(x, y) * 3);
  first->step();
  const at::Tensor loss = second->forward(x, y);
  second->backward(loss, {.retain_graph = true});
  second->backward(loss * 2);
  second->step();
  EXPECT_LT(distance(flat_parameters(*apart), flat_parameters(*together)), 1e-6);
}

TEST(Engine, LeavesFrozenParametersAndGivesGroupsTheirOwnHyperparameters) {
  auto net = make_net();
  net->first->bias.requires_grad_(false);
  const at::Tensor bias = net->first->bias.detach().clone();
  const at::Tensor still = net->second->bias.detach().clone();
  auto [engine, optimizer, loader, scheduler] =
      initialize(net, {.config = config_with({}),
                       .model_parameters = {{{net->first->weight, net->second->weight}, {}, "weights"},
                                            {{net->second->bias}, Dict{{"lr", 0.0}, {"weight_decay", 0.0}}, "biases"}}});
  EXPECT_EQ(optimizer->group_count(), 2u);
  EXPECT_EQ(optimizer->group(1).name(), "biases");
  EXPECT_EQ(engine->get_lr(), (std::vector<double>{1e-2, 0.0}));
  auto [x, y] = make_batch(0, 4);
  engine->backward(engine->forward(x, y));
  engine->step();
  EXPECT_TRUE(torch::equal(net->first->bias, bias));
  EXPECT_TRUE(torch::equal(net->second->bias, still));
  optimizer->group(1).set("lr", 0.5);
  EXPECT_THROW(optimizer->group(1).set("learning_rate", 1), Error);
  engine->backward(engine->forward(x, y));
  engine->step();
  EXPECT_FALSE(torch::equal(net->second->bias, still));
}

// A plain LibTorch loop does not clip.
TEST(Engine, LogsDefaultsThatAPlainLoopDoesNotHave) {
  const auto logged = [](const Dict& config) {
    std::string all;
    set_log_sink([&](LogLevel, const std::string& line) { all += line + "\n"; });
    initialize(make_net(), {.config = config});
    set_log_sink({});
    return all;
  };
  const Dict plain{{"train_micro_batch_size_per_gpu", 3},
                   {"accelerator", Dict{{"type", "cpu"}}},
                   {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}}}}}};
  EXPECT_THAT(logged(plain), HasSubstr("gradient_clipping = 1.0   # default (a plain LibTorch loop does not clip"));
  Dict off = plain, bf16 = plain;
  off["gradient_clipping"] = 0.0;
  EXPECT_THAT(logged(off), testing::AllOf(HasSubstr("gradient_clipping = 0"), testing::Not(HasSubstr("does not clip"))));
  bf16["bf16"] = Dict{{"enabled", true}};
  EXPECT_THAT(logged(bf16), HasSubstr("bf16.check_grad_overflow = true   # default (a step whose gradients are not finite"));
}

TEST(Engine, TwoEnginesInOneProcessDoNotTouchEachOther) {
  auto teacher = make_net(1), student = make_net(2), alone = make_net(2);
  auto a = initialize(teacher, {.config = config_with({})}).engine;
  auto b = initialize(student, {.config = config_with({})}).engine;
  auto c = initialize(alone, {.config = config_with({})}).engine;
  for (int step = 0; step < 3; ++step) {
    auto [x, y] = make_batch(step, 4);
    a->backward(a->forward(x, y));
    b->backward(b->forward(x, y));
    a->step();
    b->step();
    c->backward(c->forward(x, y));
    c->step();
  }
  EXPECT_TRUE(torch::equal(flat_parameters(*student), flat_parameters(*alone)));
}

TEST(Engine, StepsTheProgramsOwnOptimizer) {
  auto net = make_net(), plain = make_net();
  auto own = std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::SGD reference(plain->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  Dict config = config_with({{"gradient_clipping", 0}});
  config.erase("optimizer");
  auto [engine, optimizer, loader, scheduler] =
      initialize(net, {.config = config, .optimizer = own, .lr_scheduler = [](int64_t step) { return 0.1 / double(step + 1); }});
  EXPECT_EQ(optimizer->type(), "user");
  for (int step = 0; step < 4; ++step) {
    auto [x, y] = make_batch(step, 4);
    engine->backward(engine->forward(x, y));
    EXPECT_TRUE(engine->step().applied);
    reference.param_groups()[0].options().set_lr(0.1 / (step + 1));
    reference.zero_grad();
    plain->forward(x, y).backward();
    reference.step();
  }
  EXPECT_LT(distance(flat_parameters(*net), flat_parameters(*plain)), 1e-7);
}

TEST(Engine, FollowsASchedulePluginACallableOrTheProgramsHand) {
  auto [x, y] = make_batch(0, 4);
  const Dict warmup{{"type", "WarmupLR"},
                    {"params", Dict{{"warmup_max_lr", 0.1}, {"warmup_num_steps", 10}, {"warmup_type", "linear"}}}};
  auto plugin = initialize(make_net(), {.config = config_with({{"scheduler", warmup}})});
  std::vector<double> rates;
  for (int step = 0; step < 5; ++step) {
    rates.push_back(plugin.engine->get_lr()[0]);
    plugin.engine->backward(plugin.engine->forward(x, y));
    plugin.engine->step();
  }
  EXPECT_THAT(rates, testing::Pointwise(testing::DoubleNear(1e-12), std::vector<double>{0, 0, .01, .02, .03}));
  EXPECT_EQ(plugin.scheduler->type(), "WarmupLR");

  LrSchedule by_hand([](int64_t step) { return 1.0 / double(1 << step); });
  by_hand.by_hand = true;
  auto hand = initialize(make_net(), {.config = config_with({}), .lr_scheduler = by_hand});
  hand.engine->backward(hand.engine->forward(x, y));
  hand.engine->step();
  EXPECT_EQ(hand.engine->get_lr()[0], 1.0);
  hand.scheduler->step();
  EXPECT_EQ(hand.engine->get_lr()[0], 0.5);
  hand.scheduler->step_to(4);
  EXPECT_EQ(hand.scheduler->get_last_lr()[0], 0.0625);
}

TEST(Engine, CountsAnEvaluationAsNoPartOfAStep) {
  auto engine = initialize(make_net(), {.config = config_with({})}).engine;
  auto [x, y] = make_batch(0, 4);
  engine->eval();
  engine->forward(x, y);
  EXPECT_THROW(engine->backward(engine->forward(x, y)), Error);
  engine->train();
  {
    torch::NoGradGuard no_grad;
    engine->forward(x, y);
  }
  EXPECT_THROW(engine->step(), Error);
  engine->backward(engine->forward(x, y));
  EXPECT_TRUE(engine->step().applied);
}

TEST(Engine, ChangesTheBatchSizeBetweenSteps) {
  auto engine = initialize(make_net(), {.config = config_with({{"gradient_accumulation_steps", 2}})}).engine;
  EXPECT_EQ(engine->train_batch_size(), 8);
  engine->set_train_batch_size(12);
  EXPECT_EQ(engine->gradient_accumulation_steps(), 3);
  EXPECT_THROW(engine->set_train_batch_size(10), Error);
  engine->set_train_micro_batch_size(2);
  EXPECT_EQ(engine->train_batch_size(), 6);
}

TEST(Engine, DifferentiatesTwiceInDoublePrecision) {
  // u'' of a small network, the residual of a differential equation, needs the graph of a gradient.
  struct Field : torch::nn::Module {
    Field() {
      hidden = register_module("hidden", torch::nn::Linear(1, 12));
      out = register_module("out", torch::nn::Linear(12, 1));
    }
    at::Tensor forward(at::Tensor x, double scale, bool squared) {
      at::Tensor u = out(torch::tanh(hidden(x))) * scale;
      return squared ? u * u : u;
    }
    torch::nn::Linear hidden{nullptr}, out{nullptr};
  };
  torch::manual_seed(3);
  auto field = std::make_shared<Field>();
  field->to(torch::kDouble);
  auto engine = initialize(field, {.config = config_with({})}).engine;
  const at::Tensor x = torch::linspace(0, 1, 16, torch::kDouble).unsqueeze(1).requires_grad_(true);
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    const at::Tensor u = engine->forward(x, 2.0, false);
    const at::Tensor du = torch::autograd::grad({u.sum()}, {x}, {}, true, true)[0];
    const at::Tensor loss =
        (du - torch::cos(x)).square().mean() + engine->forward(torch::zeros({1, 1}, torch::kDouble), 2.0, true).mean();
    engine->backward(loss, {.create_graph = step % 2 == 0});
    if (step % 2 == 0) {
      EXPECT_TRUE(field->out->weight.grad().defined()) << "create_graph leaves .grad to the program";
    }
    EXPECT_TRUE(engine->step().applied);
    EXPECT_FALSE(field->out->weight.grad().defined());
    (step == 0 ? first : last) = loss.item<double>();
  }
  EXPECT_EQ(field->out->weight.scalar_type(), torch::kDouble);
  EXPECT_LT(last, first / 10);
}

}  // namespace
}  // namespace gannet::test
