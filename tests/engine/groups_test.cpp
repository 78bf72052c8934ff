// Parameter groups by patterns: which there are, what is refused, what a checkpoint of others tells.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/impl.h"
#include "engine/models.h"
#include "plugin/support.h"

namespace gannet {
namespace {

using namespace test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Dict config_of(const List& groups) {
  Dict config = config_with({{"gradient_clipping", 0.0}});
  config["optimizer"].as_dict()["param_groups"] = groups;
  return config;
}

std::shared_ptr<Engine<NetImpl>> engine_of(const List& groups, std::shared_ptr<NetImpl> net = make_net()) {
  return initialize(net, {.config = config_of(groups)}).engine;
}

std::vector<std::string> names_in(EngineBase& engine, size_t group) {
  std::vector<std::string> names;
  for (const auto* parameter : engine.impl().store.parameters_of(group)) names.push_back(parameter->name);
  return names;
}

void train(Engine<NetImpl>& engine, int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    auto [x, y] = make_batch(step, 4);
    engine.backward(engine.forward(x, y));
    engine.step();
  }
}

TEST(ParamGroups, TheFirstMatchWinsAndTheRestComesFirst) {
  auto engine =
      engine_of({Dict{{"match", "second.*"}, {"lr", 0.5}}, Dict{{"match", List{"*.bias", "first.b*"}}, {"weight_decay", 0}}});
  EXPECT_THAT(names_in(*engine, 0), ElementsAre("first.weight"));
  EXPECT_THAT(names_in(*engine, 1), ElementsAre("second.weight", "second.bias"));
  EXPECT_THAT(names_in(*engine, 2), ElementsAre("first.bias"));
  EXPECT_EQ(engine->get_lr(), (std::vector<double>{1e-2, 0.5, 1e-2}));
}

TEST(ParamGroups, ATiedParameterIsMatchedByAnyOfItsNames) {
  auto net = make_net();
  net->register_module("again", net->second.ptr());
  auto engine = engine_of({Dict{{"match", "again.weight"}, {"lr", 0.5}}}, net);
  EXPECT_THAT(names_in(*engine, 1), ElementsAre("second.weight"));
}

TEST(ParamGroups, AllParametersMayMatch) {
  auto engine = engine_of({Dict{{"match", "*"}, {"lr", 0.5}}});
  train(*engine, 2);
  EXPECT_EQ(engine->get_lr(), (std::vector<double>{1e-2, 0.5}));
  EXPECT_EQ(engine->impl().store.parameters_of(1).size(), 4u);
}

TEST(ParamGroups, APatternThatMatchesNothingIsNamedWithANearOne) {
  const auto document = [](const std::string& groups) {
    return Config(R"({"train_batch_size": 4, "accelerator": {"type": "cpu"},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}, "param_groups": [)" +
                  groups + "]}}");
  };
  const auto message = [&](const std::string& groups) {
    return std::string(error_of([&] { initialize(make_net(), {.config = document(groups)}); }).what());
  };
  EXPECT_THAT(
      message(R"({"match": "*.bias", "weight_decay": 0}, {"match": ["second.*", "*.wieght"]})"),
      AllOf(HasSubstr(":2:115: optimizer.param_groups.1.match: pattern '*.wieght' matches no parameter of the model; did you "
                      "mean '*.weight'?"),
            HasSubstr("the model's 4 names begin with first.weight, first.bias, second.weight, second.bias")));
  EXPECT_THAT(message(R"({"match": "*.bias"}, {"match": "first.bias"})"),
              HasSubstr("every parameter that pattern 'first.bias' matches is in an earlier group"));
  EXPECT_THAT(message(R"({"match": "*.bias", "wieght_decay": 0})"),
              HasSubstr(":2:94: optimizer plugin AdamW has no parameter 'wieght_decay'; did you mean 'weight_decay'?"));
  EXPECT_THAT(message(R"({"match": "*.bias", "betas": [2, 0.9]})"),
              HasSubstr(":2:94: parameter 'betas' of optimizer plugin AdamW"));
}

TEST(ParamGroups, AMistakeInThePatternsOfTheProgramIsNamed) {
  const auto error = [](std::vector<ParameterGroup> groups, const Dict& config = config_of({})) {
    return error_of([&] { initialize(make_net(), {.config = config, .model_parameters = std::move(groups)}); });
  };
  EXPECT_THAT(
      error({{.match = {"*.biass"}}}).what(),
      HasSubstr("model_parameters[0].match: pattern '*.biass' matches no parameter of the model; did you mean '*.bias'?"));
  auto net = make_net();
  EXPECT_THAT(error({{.parameters = net->parameters(), .name = "all"}, {.match = {"*.bias"}}}).what(),
              HasSubstr("model_parameters: group 'all' has no pattern, and other groups have"));
  EXPECT_THAT(error({{.overrides = Dict{{"weight_dekay", 0}}, .match = {"*.bias"}}}).what(),
              HasSubstr("model_parameters, group '*.bias': optimizer plugin AdamW has no parameter 'weight_dekay'"));
  EXPECT_THAT(error({{.match = {"*.bias"}}}, config_of({Dict{{"match", "first.*"}}})).what(),
              HasSubstr("optimizer.param_groups makes a parameter group, and the program gave initialize one of its own "
                        "(InitializeOptions::model_parameters)"));
  const auto own = error_of([&] {
    initialize(net, {.config = config_of({Dict{{"match", "first.*"}}}),
                     .optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1)});
  });
  EXPECT_THAT(own.what(), HasSubstr("an optimizer with groups of its own (InitializeOptions::optimizer)"));
}

class ParamGroupsSaved : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  const TemporaryFolder folder_;
  std::string save(const List& groups) {
    auto engine = engine_of(groups);
    engine->optimizer_handle()->group(groups.size()).set("weight_decay", 0.25);
    train(*engine, 3);
    engine->save_checkpoint(file("run"));
    return file("run");
  }
};

TEST_F(ParamGroupsSaved, TheSameTensorsKeepTheirHyperparametersInAnyOrder) {
  const Dict biases{{"match", "*.bias"}, {"weight_decay", 0}}, head{{"match", "second.weight"}, {"lr", 0.5}};
  save({biases, head});
  auto engine = engine_of({head, biases});
  const LoadReceipt receipt = engine->load_checkpoint(file("run"));
  EXPECT_EQ(engine->optimizer_handle()->group(1).get("weight_decay"), 0.25);
  EXPECT_EQ(engine->get_lr(), (std::vector<double>{1e-2, 0.5, 1e-2}));
  EXPECT_THAT(receipt.to_string(), HasSubstr("weight_decay of second.weight is the checkpoint's 0.25, not the config's 0.1"));
  EXPECT_THAT(receipt.to_string(), Not(HasSubstr("other tensors")));
}

TEST_F(ParamGroupsSaved, ChangedPatternsAreToldAndGetTheConfigsValues) {
  save({Dict{{"match", "*.bias"}, {"weight_decay", 0}}});
  auto engine = engine_of({Dict{{"match", "second.*"}, {"weight_decay", 0.5}}});
  const LoadReceipt receipt = engine->load_checkpoint(file("run"));
  EXPECT_EQ(engine->optimizer_handle()->group(0).get("weight_decay"), 0.1);
  EXPECT_EQ(engine->optimizer_handle()->group(1).get("weight_decay"), 0.5);
  EXPECT_THAT(
      receipt.to_string(),
      HasSubstr("parameter groups have other tensors than in the checkpoint ('first.bias' was in '*.bias' and is in 'default', "
                "'second.bias' was in '*.bias' and is in 'second.*', 'second.weight' was in 'default' and is in "
                "'second.*'): hyperparameters of 'default', 'second.*' are the config's"));
  auto third = engine_of({Dict{{"match", "first.bias"}, {"weight_decay", 0.5}}, Dict{{"match", "second.bias"}}});
  EXPECT_THAT(
      third->load_checkpoint(file("run")).to_string(),
      HasSubstr("the checkpoint has 2 parameter groups, this engine 3 ('first.bias' was in '*.bias' and is in 'first.bias'"));
}

TEST_F(ParamGroupsSaved, ARenamedGroupIsTold) {
  save({Dict{{"match", "*.bias"}, {"weight_decay", 0}}});
  auto engine = engine_of({Dict{{"match", "*.bias"}, {"name", "vectors"}}});
  EXPECT_THAT(engine->load_checkpoint(file("run")).to_string(),
              HasSubstr("parameter group '*.bias' of the checkpoint is 'vectors' here: it has the same tensors"));
  EXPECT_EQ(engine->optimizer_handle()->group(1).get("weight_decay"), 0.25);
}

TEST_F(ParamGroupsSaved, TheMetricsFileHasTheGroups) {
  Dict config = config_of({Dict{{"match", "*.bias"}, {"weight_decay", 0}}});
  config["gannet"] = Dict{{"metrics", Dict{{"path", file("metrics.jsonl")}}}};
  initialize(make_net(), {.config = config}).engine.reset();
  std::ifstream stream(file("metrics.jsonl"));
  std::string line;
  std::getline(stream, line);
  EXPECT_THAT(line, HasSubstr(R"("groups": [{"name": "default", "parameters": 192, "hyper": {"lr": 0.01,)"));
  EXPECT_THAT(line, HasSubstr(R"({"name": "*.bias", "parameters": 20, "hyper": {)"));
}

}  // namespace
}  // namespace gannet
