// Uses of tied weights besides training: frozen ones, other names and orders, several of them,
// writes into one copy; and refused uses.
#include <gannet/gannet.h>
#include <gtest/gtest.h>

#include <map>

#include "mesh/tied_model.h"
#include "plugin/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;
using ranks::same;

const std::map<std::string, std::string> kTwoStages{{"PIPE", "2"}};

// Two tensors that both stages hold, registered in another order on each, under equal names.
struct TwoTiesImpl : torch::nn::Module {
  explicit TwoTiesImpl(uint32_t stage) {
    std::vector<std::string> names = {"a", "b"};
    if (stage == 1) std::swap(names[0], names[1]);
    for (const std::string& name : names) {
      const at::Tensor weight = register_parameter(name, torch::full({300}, name == "a" ? 1.0 + stage : 3.0 + stage));
      gannet::declare_tied(weight, "tensor " + name);
    }
    register_parameter("own" + std::to_string(stage), torch::ones({5}));
  }
  at::Tensor forward(double of_a, double of_b) {
    at::Tensor sum;
    for (const auto& entry : named_parameters()) {
      const double factor = entry.key() == "a" ? of_a : entry.key() == "b" ? of_b : 0;
      const at::Tensor term = (entry.value() * factor).sum();
      sum = sum.defined() ? sum + term : term;
    }
    return sum;
  }
};

// Gradients of the copies are summed over stages and averaged over data, and the norm has each once.
RANK_BODY(several_ties) {
  const auto world = gannet::init_distributed();
  for (const int64_t stage : {0, 1, 2, 3}) {
    Dict config = split_config(stage);
    config["optimizer"] = Dict{{"type", "SGD"}, {"params", Dict{{"lr", 0.5}}}};
    config["gradient_accumulation_steps"] = 1;
    config["gradient_clipping"] = 0.0;
    config["gannet"] = Dict{{"mesh", Dict{{"pipe", 2}}}, {"fingerprint_every", 1}};
    const uint32_t place = world->rank() / 2;
    auto model = std::make_shared<TwoTiesImpl>(place);
    auto engine = gannet::initialize(model, {.config = config}).engine;
    expect(engine->full_fp32_parameter("a").eq(1.0).all().item<bool>(), "the first stage's values of a");
    expect(engine->full_fp32_parameter("b").eq(3.0).all().item<bool>(), "the first stage's values of b");
    // Gradients of a: 1 and 3 on the two ranks of stage 0, 2 and 4 on those of stage 1: means of 2
    // and 3.
    const double own = place + 1.0 + 2 * engine->rank();
    engine->backward(engine->forward(own, 10.0));
    engine->step();
    expect(engine->full_fp32_parameter("a").eq(1.0 - 0.5 * 5).all().item<bool>(), "the sum of both stages' means, of a");
    expect(engine->full_fp32_parameter("b").eq(3.0 - 0.5 * 20).all().item<bool>(), "the sum of both stages' means, of b");
    const double expected = std::sqrt(300.0 * (5 * 5 + 20 * 20));
    expect(std::abs(*engine->get_global_grad_norm() - expected) < 1e-6 * expected, "each counts once in the norm");
  }
}
// A tensor that each stage holds under another name.
struct OneTieImpl : torch::nn::Module {
  explicit OneTieImpl(uint32_t stage) : weight(register_parameter(stage == 0 ? "first" : "last", torch::ones({300}))) {
    gannet::declare_tied(weight, "words");
  }
  at::Tensor forward(double factor) { return (weight.to(torch::kFloat) * factor).sum(); }
  at::Tensor weight;
};

// Copies that are rounded stochastically draw the same numbers, whatever their names.
RANK_BODY(ties_that_round) {
  const auto world = gannet::init_distributed();
  for (const int64_t stage : {0, 1}) {
    Dict config = split_config(stage);
    config["optimizer"] = Dict{{"type", "AdamWBF16"}, {"params", Dict{{"lr", 1e-3}}}};
    config["bf16"] = Dict{{"enabled", true}, {"bf16_master_weights_and_grads", true}};
    config["gradient_accumulation_steps"] = 1;
    config["gannet"] = Dict{{"mesh", Dict{{"pipe", 2}}}, {"fingerprint_every", 1}};
    const uint32_t place = world->rank() / 2;
    auto model = std::make_shared<OneTieImpl>(place);
    auto engine = gannet::initialize(model, {.config = config}).engine;
    for (int step = 0; step < 5; ++step) {
      engine->backward(engine->forward(1.0 + step));
      engine->step();
    }
    const at::Tensor values = engine->full_fp32_parameter(place == 0 ? "first" : "last").to(torch::kFloat).contiguous();
    const std::string bytes(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
    for (const std::string& other : world->gather(bytes)) expect(other == bytes, "every copy has the same bits");
    expect(values.min().item<double>() < values.max().item<double>(), "elements are rounded apart");
  }
}
TEST(Ties, CopiesThatAreRoundedStochasticallyStayEqual) {
  expect_all_succeed(run_ranks("ties_that_round", 4, {.environment = kTwoStages}));
}

TEST(Ties, SeveralAreEachSummedOverStagesAndMeansOverData) {
  expect_all_succeed(run_ranks("several_ties", 4, {.environment = kTwoStages}));
}

// Copies of equal names, saved between two boundaries: each stage's sum so far is its own.
RANK_BODY(ties_of_equal_names) {
  const auto world = gannet::init_distributed();
  for (const int64_t stage : {0, 2}) {
    Dict config = split_config(stage);
    config["optimizer"] = Dict{{"type", "SGD"}, {"params", Dict{{"lr", 0.5}}}};
    config["gradient_clipping"] = 0.0;
    config["gannet"] = Dict{{"mesh", Dict{{"pipe", 2}}}, {"fingerprint_every", 1}};
    const uint32_t place = world->rank() / 2;
    const std::string folder = variable("FOLDER") + "/" + std::to_string(stage);
    auto saved = gannet::initialize(std::make_shared<TwoTiesImpl>(place), {.config = config}).engine;
    saved->backward(saved->forward(4.0 + 8 * place, 0.0));
    saved->step();
    saved->save_checkpoint(folder);
    auto engine = gannet::initialize(std::make_shared<TwoTiesImpl>(place), {.config = config}).engine;
    engine->load_checkpoint(folder);
    engine->backward(engine->forward(0.0, 16.0));
    expect(engine->step().applied, "the second micro-batch ends the step");
    expect(engine->full_fp32_parameter("a").eq(1.0 - 0.5 * (4 + 12) / 2).all().item<bool>(), "both stages' sums of a");
    expect(engine->full_fp32_parameter("b").eq(3.0 - 0.5 * 32 / 2).all().item<bool>(), "both stages' sums of b");
  }
}
TEST(Ties, CopiesOfEqualNamesResumeBetweenTwoBoundaries) {
  const TemporaryFolder folder;
  expect_all_succeed(run_ranks("ties_of_equal_names", 4, {.environment = {{"PIPE", "2"}, {"FOLDER", folder.string()}}}));
}

RANK_BODY(frozen_ties) {
  for (const int64_t stage : {0, 3}) {
    StagesRun run(split_config(stage), {.trains_words = false});
    torch::manual_seed(1);
    const at::Tensor first = torch::randn({12, 8}) * 0.3;
    run.train(0, 4);
    for (const auto& [name, value] : run.engine->fp32_state())
      if (name.ends_with(".words")) expect(value.equal(first), "every stage has them: " + name);
    const std::string folder = variable("FOLDER") + "/" + std::to_string(stage);
    run.engine->save_checkpoint(folder, {.tag = "all"});
    run.world->barrier();
    const auto saved = tensors_of(folder, "all");
    expect(saved.at("parameter/first.words").equal(first), "the first stage's values, as they were");
    expect(!saved.contains("parameter/last.words"), "they are saved once");
    StagesRun other(split_config(stage), {.seed = 4, .trains_words = false});
    other.engine->load_checkpoint(folder);
    for (const auto& [name, value] : other.engine->fp32_state())
      if (name.ends_with(".words")) expect(value.equal(first), "loaded: " + name);
  }
}
TEST(Ties, FrozenOnesHaveTheFirstStagesValues) {
  const TemporaryFolder folder;
  expect_all_succeed(run_ranks("frozen_ties", 4, {.environment = {{"PIPE", "2"}, {"FOLDER", folder.string()}}}));
}

RANK_BODY(ties_under_init) {
  StagesRun plain(split_config(3)), under_init(split_config(3), {.under_init = true});
  for (StagesRun* run : {&plain, &under_init}) run->train(0, 4);
  const auto expected = plain.engine->fp32_parameters(), found = under_init.engine->fp32_parameters();
  for (size_t i = 0; i < expected.size(); ++i)
    expect(found.at(i).second.equal(expected[i].second), "built under Init: " + expected[i].first);
}
TEST(Ties, ZeroInitLeavesThemToInitialize) { expect_all_succeed(run_ranks("ties_under_init", 4, {.environment = kTwoStages})); }

// The program writes only into the copy of one stage.
RANK_BODY(differing_copies) {
  for (const int64_t stage : {0, 3}) {
    StagesRun run(split_config(stage));
    run.train(0, 2);
    if (run.is_last()) {
      const at::Tensor value = run.engine->full_fp32_parameter("last.words").clone();
      run.engine->set_full_fp32_parameter("last.words", value + 1);
    }
    const std::string sentence = message_of([&] { run.train(2, 2); });
    contains(sentence, "the ranks have different values of '");
    contains(sentence, "tied along the axis pipe");
  }
}
TEST(Ties, CopiesThatDifferAreFound) { expect_all_succeed(run_ranks("differing_copies", 4, {.environment = kTwoStages})); }

// Frozen and thawed between steps: on both stages a tensor that waits, on one an error on all ranks.
RANK_BODY(ties_frozen_later) {
  StagesRun run(split_config(1));
  run.train(0, 2);
  const std::string name = run.model->stage == 0 ? "first.words" : "last.words";
  const at::Tensor before = run.engine->full_fp32_parameter(name).clone();
  run.model->words().set_requires_grad(false);
  run.train(2, 2);
  expect(run.engine->full_fp32_parameter(name).equal(before), "frozen on both stages");
  run.model->words().set_requires_grad(true);
  run.train(4, 2);
  expect(!run.engine->full_fp32_parameter(name).equal(before), "thawed on both stages");
  const std::string folder = variable("FOLDER");
  run.engine->save_checkpoint(folder);  // with the update that it missed
  run.train(6, 2);
  StagesRun resumed(split_config(1), /*seed=*/5);
  resumed.engine->load_checkpoint(folder);
  resumed.train(6, 2);
  expect(resumed.engine->full_fp32_parameter(name).equal(run.engine->full_fp32_parameter(name)), "resumed behind a freeze");
  if (run.is_last()) run.model->words().set_requires_grad(false);
  contains(message_of([&] { run.train(8, 2); }), "is trained on some of the pipeline stages 0, 1 and frozen on others");
}
TEST(Ties, AFreezeIsOfAllCopies) {
  const TemporaryFolder folder;
  expect_all_succeed(run_ranks("ties_frozen_later", 4, {.environment = {{"PIPE", "2"}, {"FOLDER", folder.string()}}}));
}

RANK_BODY(refused_ties) {
  const auto world = gannet::init_distributed();
  const auto refused = [&](const StagesRun::How& how, const std::vector<std::string>& texts, Dict config = split_config(1)) {
    const std::string message = message_of([&] { StagesRun run(std::move(config), how); });
    for (const std::string& text : texts) contains(message, text);
  };
  refused(
      {.tie = [](uint32_t rank) { return rank == 3 ? nullptr : "words"; }},
      {"parameter 'last.words' is declared as tied tensor 'words' on rank 2, and not on rank 3, of the same pipeline stage 1"});
  refused({.tie = [](uint32_t rank) { return rank < 2 ? "words" : nullptr; }},
          {"parameter 'first.words' is declared as tied tensor 'words' only on pipeline stage 0"});
  refused({.tie = [](uint32_t rank) { return rank < 2 ? "words" : "word"; }}, {"only on pipeline stage 1"});
  const auto matrix = [](StagesImpl& model) {
    if (model.stage == 1) gannet::declare_tied(model.named_parameters()["last.matrix"], "words");
  };
  refused({.prepare = matrix},
          {"parameters 'last.words' and 'last.matrix' of one module are both declared as tied tensor 'words'"});
  refused({.prepare = matrix, .tie = [](uint32_t rank) { return rank < 2 ? "words" : nullptr; }},
          {"the shape of 'first.words' on rank 0 is [12, 8], that of 'last.matrix' on rank 2 is [12, 12]"});
  refused({.prepare = [](StagesImpl& model) { model.words().set_requires_grad(model.stage == 0); }},
          {"the training of 'first.words' on rank 0 is in parameter group 0", "that of 'last.words' on rank 2 is none"});
  refused({.prepare =
               [](StagesImpl& model) {
                 if (model.stage == 1) model.words().set_data(model.words().to(torch::kDouble));
               }},
          {"the dtype of 'first.words' on rank 0 is Float, that of 'last.words' on rank 2 is Double"});
  refused({.groups =
               [](StagesImpl& model) {
                 return std::vector<gannet::ParameterGroup>{
                     {.overrides = {{"weight_decay", model.stage == 0 ? 0.1 : 0.0}}, .match = {"*.words"}}};
               }},
          {"weight_decay 0.1", "weight_decay 0"});
  Dict local = split_config(1);
  local["checkpoint"] = Dict{{"use_node_local_storage", true}};
  refused({}, {"tied tensor 'words' is saved by one stage of the pipeline"}, local);
  StagesRun run(split_config(1));
  run.train(0, 2);
  contains(message_of([&] { gannet::declare_tied(run.model->words(), "other"); }), "is trained by");
  contains(message_of([&] { gannet::declare_tied(torch::zeros({2}), ""); }), "the name of the tensor is empty");
  contains(message_of([&] { gannet::declare_tied(torch::zeros({2}, torch::kLong), "x"); }), "of dtype Long");
  contains(message_of([&] { gannet::declare_tied(at::Tensor(), "x"); }), "an undefined tensor");
}
TEST(Ties, WhatCannotBeIsRefusedOnEveryRank) { expect_all_succeed(run_ranks("refused_ties", 4, {.environment = kTwoStages})); }

}  // namespace
