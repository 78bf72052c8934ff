// What a pipe::Module is made of, and what its engine refuses, in a pipeline of one stage.
#include <gannet/lazy.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/models.h"
#include "pipeline/net.h"

namespace gannet::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const pipe::Options kOne{.num_stages = 1, .loss_fn = next_word_loss};
const Dict kConfig = config_with({{"gradient_accumulation_steps", 3}});

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

pipe::Source endless(int64_t first = 0) {
  return [number = first]() mutable { return std::optional(words_of(number++, 0, 1)); };
}

std::shared_ptr<PipeNetImpl> make_net(const PipeNetImpl::How& how = {}) { return std::make_shared<PipeNetImpl>(how); }

TEST(PipeModule, OneStageTrainsAsTheModelDoesWithoutAPipeline) {
  for (const bool is_tied : {false, true}) {
    const auto net = make_net({.dropout = 0, .is_tied = is_tied}), plain = make_net({.dropout = 0, .is_tied = is_tied});
    const auto engine = initialize(pipe::Module(net, kOne), {.config = kConfig}).engine;
    const auto loop = initialize(plain, {.config = kConfig}).engine;
    EXPECT_EQ(engine->parameter_names().size(), loop->parameter_names().size());
    const auto source = endless();
    for (int64_t step = 0; step < 4; ++step) {
      const double loss = engine->train_batch(source);
      double sum = 0;
      for (int64_t i = 0; i < 3; ++i) {
        const pipe::MicroBatch batch = words_of(3 * step + i, 0, 1);
        const at::Tensor one = next_word_loss(loop->forward(batch.inputs[0]), batch.labels[0]);
        sum += one.item<double>();
        loop->backward(one);
        loop->step();
      }
      EXPECT_DOUBLE_EQ(loss, sum / 3);
      EXPECT_EQ(engine->get_global_grad_norm(), loop->get_global_grad_norm());
    }
    EXPECT_TRUE(at::equal(flat_parameters(*net), flat_parameters(*plain)));
    EXPECT_EQ(engine->global_steps(), 4);
  }
}

TEST(PipeModule, EvaluatesAsTheModelDoes) {
  const auto net = make_net();
  const auto engine = initialize(pipe::Module(net, kOne), {.config = kConfig}).engine;
  engine->train_batch(endless());
  const pipe::EvalResult result = engine->eval_batch(endless(7), {.return_logits = true, .num_micro_batches = 2});
  EXPECT_TRUE(net->is_training());
  net->eval();
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (int64_t i = 0; i < 2; ++i) {
    const pipe::MicroBatch batch = words_of(7 + i, 0, 1);
    const at::Tensor logits = net->forward(batch.inputs[0]);
    sum += next_word_loss(logits, batch.labels[0]).item<double>();
    EXPECT_TRUE(at::equal(result.logits.at(static_cast<size_t>(i)).at(0), logits));
  }
  EXPECT_DOUBLE_EQ(result.loss.value(), sum / 2);
  const pipe::EvalResult each = engine->eval_batch(endless(7), {.reduce_output = pipe::EvalOptions::Reduce::kNone});
  EXPECT_EQ(each.losses.size(), 3u);
  EXPECT_FALSE(each.loss);
  EXPECT_FALSE(engine->eval_batch(endless(7), {.compute_loss = false}).loss);
}

// The loss of a batch is then that of all its labels, whatever the micro-batches have.
TEST(PipeModule, WeightsMakeMicroBatchesCountByTheirLabels) {
  const auto net = make_net({.dropout = 0}), plain = make_net({.dropout = 0});
  const auto engine = initialize(pipe::Module(net, kOne), {.config = kConfig}).engine;
  const auto loop = initialize(plain, {.config = kConfig}).engine;
  for (int64_t step = 0; step < 3; ++step) {
    double labels = 0;
    for (int64_t i = 0; i < 3; ++i) labels += static_cast<double>(words_of(4 * step + 2 * i, 0, 1).labels[0].numel());
    auto weighted = [&, i = int64_t{0}]() mutable {
      pipe::MicroBatch batch = words_of(4 * step + 2 * i++, 0, 1);
      batch.weight = static_cast<double>(batch.labels[0].numel()) * 3 / labels;
      return std::optional(std::move(batch));
    };
    const double loss = engine->train_batch(weighted);
    EXPECT_TRUE(engine->last_step().applied);
    at::Tensor sum = torch::zeros({});
    for (int64_t i = 0; i < 3; ++i) {
      const pipe::MicroBatch batch = words_of(4 * step + 2 * i, 0, 1);
      const at::Tensor logits = loop->forward(batch.inputs[0]);
      const at::Tensor share =
          torch::nn::functional::cross_entropy(logits.flatten(0, 1), batch.labels[0].flatten(),
                                               torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum)) /
          labels;
      sum += share.detach();
      loop->backward(share, {.scale_wrt_gas = false});
      loop->step();
    }
    EXPECT_NEAR(loss, sum.item<double>(), 1e-6);
  }
  EXPECT_LT((flat_parameters(*net) - flat_parameters(*plain)).norm().item<double>(), 1e-5);
  const pipe::EvalResult each =
      engine->eval_batch([] { return pipe::MicroBatch{words_of(0, 0, 1).inputs, words_of(0, 0, 1).labels, 2}; },
                         {.reduce_output = pipe::EvalOptions::Reduce::kNone});
  EXPECT_DOUBLE_EQ(each.losses.at(0), 2 * engine->eval_batch(endless(0), {.num_micro_batches = 1}).loss.value());
}

TEST(PipeModule, AMicroBatchOfWeightZeroCountsForNothing) {
  const auto net = make_net({.dropout = 0}), plain = make_net({.dropout = 0});
  Dict config = kConfig;
  config["gradient_accumulation_steps"] = 2;
  const auto engine = initialize(pipe::Module(net, kOne), {.config = config}).engine;
  const auto loop = initialize(plain, {.config = kConfig, .overwrite = {{"gradient_accumulation_steps", 1}}}).engine;
  int64_t calls = 0;
  engine->train_batch([&] {
    pipe::MicroBatch batch = words_of(calls, 0, 1);
    batch.weight = calls++ == 0 ? 2 : 0;
    return std::optional(std::move(batch));
  });
  EXPECT_TRUE(engine->last_step().applied);
  const pipe::MicroBatch batch = words_of(0, 0, 1);
  loop->backward(next_word_loss(loop->forward(batch.inputs[0]), batch.labels[0]));
  loop->step();
  EXPECT_LT((flat_parameters(*net) - flat_parameters(*plain)).norm().item<double>(), 1e-5);
}

TEST(PipeModule, ASequentialIsAListOfLayers) {
  torch::manual_seed(1);
  const torch::nn::Sequential net(torch::nn::Linear(4, 6), torch::nn::Tanh(), torch::nn::Linear(6, 1));
  const pipe::Module module(
      net, {.loss_fn = [](const at::Tensor& y, const at::Tensor& target) { return torch::mse_loss(y, target); }});
  EXPECT_EQ(module->layer_count(), 3u);
  const auto engine = initialize(module, {.config = config_with({})}).engine;
  EXPECT_THAT(engine->parameter_names(), testing::UnorderedElementsAre("0.weight", "0.bias", "2.weight", "2.bias"));
  const auto batch = [] { return std::pair(torch::ones({4, 4}), torch::zeros({4, 1})); };
  const double before = engine->train_batch(batch);
  for (int i = 0; i < 5; ++i) engine->train_batch(batch);
  EXPECT_LT(engine->train_batch(batch), before);
}

TEST(PipeModule, AListOfLayersNamesItsParametersByTheLayers) {
  torch::manual_seed(1);
  const torch::nn::Linear first(4, 4), last(4, 1);
  const pipe::Module module(
      std::vector<Layer>{layer_of("body.first", first), function("tanh", [](const at::Tensor& x) { return x.tanh(); }),
                         layer_of("last", last)},
      {.loss_fn = [](const at::Tensor& y, const at::Tensor& target) { return torch::mse_loss(y, target); }});
  const auto engine = initialize(module, {.config = config_with({})}).engine;
  EXPECT_THAT(engine->parameter_names(),
              testing::UnorderedElementsAre("body.first.weight", "body.first.bias", "last.weight", "last.bias"));
}

TEST(PipeModule, TrainsOnTheDataOfInitialize) {
  std::vector<Example> samples;
  for (int64_t i = 0; i < 24; ++i) {
    const pipe::MicroBatch one = words_of(0, 0, 1);
    samples.push_back({one.inputs[0][i % 4], one.labels[0][i % 4]});
  }
  const auto made = initialize(pipe::Module(make_net(), kOne), {.config = kConfig, .training_data = samples});
  made.engine->set_batch_fn([](pipe::MicroBatch batch) {
    batch.labels[0] = batch.labels[0].clone();
    return batch;
  });
  const double first = made.engine->train_batch();
  for (int i = 0; i < 20; ++i) made.engine->train_batch();  // epochs follow one another
  EXPECT_LT(made.engine->train_batch(), first);
  RepeatingLoader endless_loader(made.loader);
  EXPECT_GT(made.engine->train_batch(endless_loader), 0);
}

TEST(PipeModule, OtherCallsOfTrainingSayWhatToCall) {
  const auto engine = initialize(pipe::Module(make_net(), kOne), {.config = kConfig}).engine;
  EngineBase& base = *engine;
  const at::Tensor loss = torch::ones({}, torch::requires_grad());
  for (const auto& body :
       std::vector<std::function<void()>>{[&] { base.backward(loss); }, [&] { base.step(); }, [&] { base.scale(loss); },
                                          [&] { const auto scope = base.no_sync(); }})
    EXPECT_THAT(message_of(body), AllOf(HasSubstr("was called on the engine of a pipeline"), HasSubstr("call train_batch()")));
  engine->train_batch(endless());
}

TEST(PipeModule, DataThatEndsLeavesTheEngineAsItWas) {
  const auto net = make_net();
  const auto engine = initialize(pipe::Module(net, kOne), {.config = kConfig}).engine;
  const at::Tensor before = flat_parameters(*net);
  int64_t number = 0;
  const pipe::Source five = [&]() -> std::optional<pipe::MicroBatch> {
    if (number == 5) return std::nullopt;
    return words_of(number++, 0, 1);
  };
  engine->train_batch(five);
  EXPECT_THAT(message_of([&] { engine->train_batch(five); }), HasSubstr("takes 3 micro-batches, and the data ended after 2"));
  EXPECT_EQ(engine->global_steps(), 1);
  engine->train_batch(endless());
  EXPECT_EQ(engine->global_steps(), 2);
  EXPECT_THAT(message_of([&] { engine->train_batch(); }), HasSubstr("train_batch() was given no data"));
  EXPECT_FALSE(at::equal(flat_parameters(*net), before));
}

TEST(PipeModule, WrongModelsAreRefusedBeforeAnythingIsChanged) {
  const auto refused = [](const auto& make) { return message_of([&] { initialize(make(), {.config = kConfig}); }); };
  EXPECT_THAT(refused([] { return pipe::Module(std::vector<Layer>{}, kOne); }), HasSubstr("was given no layers"));
  EXPECT_THAT(refused([] {
                const torch::nn::Linear one(2, 2);
                return pipe::Module(std::vector<Layer>{layer_of("a", one), layer_of("a", one)}, kOne);
              }),
              HasSubstr("two layers of a pipe::Module have the name 'a'"));
  EXPECT_THAT(refused([] { return pipe::Module(make_net(), {.num_stages = 2}); }),
              HasSubstr("pipe::Module's num_stages: a mesh of pipe 2"));
  EXPECT_THAT(refused([] {
                auto net = make_net();
                auto layers = net->layers();
                layers.erase(layers.begin() + 2);
                return pipe::Module(std::make_shared<pipe::ModuleImpl>(net, layers, kOne));
              }),
              HasSubstr("'h.1.norm.weight' of the model is in none of the modules that its layers name"));
  EXPECT_THAT(refused([] { return pipe::Module(make_net(), {.num_stages = 1, .bounds = {0, 3}}); }),
              HasSubstr("must lead from 0 to 7"));
  const pipe::Module twice(make_net(), kOne);
  initialize(twice, {.config = kConfig});
  EXPECT_THAT(refused([&] { return twice; }), HasSubstr("given to a second engine"));
}

TEST(PipeModule, ALossIsOneElementThatDependsOnAParameter) {
  const auto loss_of = [](pipe::Loss loss) {
    const auto engine = initialize(pipe::Module(make_net(), {.loss_fn = std::move(loss)}), {.config = kConfig}).engine;
    return message_of([&] { engine->train_batch(endless()); });
  };
  EXPECT_THAT(loss_of([](const at::Tensor& logits, const at::Tensor&) { return logits; }),
              HasSubstr("is a tensor of one element"));
  EXPECT_THAT(loss_of([](const at::Tensor& logits, const at::Tensor&) { return logits.detach().sum(); }),
              HasSubstr("does not depend on any parameter"));
  EXPECT_THAT(loss_of([](const at::Tensor& logits) { return logits.sum(); }), HasSubstr("the loss takes 1 tensor"));
  EXPECT_THAT(loss_of({}), HasSubstr("is a tensor of one element"));
}

TEST(PipeModule, AnExceptionInALayerEndsTheStepUntilALoad) {
  const std::string folder = testing::TempDir() + "/pipe_exception";
  const auto net = make_net();
  const auto engine = initialize(pipe::Module(net, kOne), {.config = kConfig}).engine;
  engine->train_batch(endless());
  engine->save_checkpoint(folder);
  int calls = 0;
  net->blocks[1]->on_call = [&](const at::Tensor&) {
    if (++calls == 2) throw std::runtime_error("a layer fails");
  };
  EXPECT_THROW(engine->train_batch(endless()), std::runtime_error);
  EXPECT_THAT(message_of([&] { engine->train_batch(endless()); }), HasSubstr("was called after train_batch() failed in step 2"));
  engine->load_checkpoint(folder);
  engine->train_batch(endless());
  EXPECT_EQ(engine->global_steps(), 2);
}

TEST(PipeModule, RecomputationHasTheSameBits) {
  std::vector<at::Tensor> trained;
  for (const int64_t interval : {0, 1, 3}) {
    const auto net = make_net();
    const auto engine =
        initialize(
            pipe::Module(net, {.loss_fn = next_word_loss, .seed_layers = true, .activation_checkpoint_interval = interval}),
            {.config = kConfig})
            .engine;
    const auto source = endless();
    for (int i = 0; i < 3; ++i) engine->train_batch(source);
    trained.push_back(flat_parameters(*net));
  }
  EXPECT_TRUE(at::equal(trained[0], trained[1]));
  EXPECT_TRUE(at::equal(trained[0], trained[2]));
}

TEST(PipeModule, ANonFiniteLossIsAnErrorAfterWhichTrainingGoesOn) {
  const auto net = make_net();
  const auto engine =
      initialize(pipe::Module(net, {.loss_fn =
                                        [](const at::Tensor& logits, const at::Tensor& labels) {
                                          return next_word_loss(logits, labels) * (labels.size(1) == 4 ? 1e38 * 1e38 : 1.0);
                                        }}),
                 {.config = kConfig})
          .engine;
  const at::Tensor before = flat_parameters(*net);
  EXPECT_THAT(message_of([&] { engine->train_batch(endless()); }), HasSubstr("the loss was not finite either"));
  EXPECT_TRUE(at::equal(flat_parameters(*net), before));
  engine->train_batch([number = int64_t{0}]() mutable { return words_of(3 + 9 * number++, 0, 1); });
  EXPECT_EQ(engine->global_steps(), 1);
}

TEST(PipeModule, EveryModuleOfAListIsTrained) {
  torch::manual_seed(1);
  const torch::nn::Linear a(4, 4), b(4, 4);
  const auto both =
      function("out", {a.ptr(), b.ptr()}, [a, b](const at::Tensor& x) { return torch::nn::Linear(b)(torch::nn::Linear(a)(x)); });
  const auto engine =
      initialize(pipe::Module(std::vector<Layer>{both},
                              {.loss_fn = [](const at::Tensor& y, const at::Tensor& t) { return torch::mse_loss(y, t); }}),
                 {.config = config_with({})})
          .engine;
  EXPECT_THAT(engine->parameter_names(), testing::UnorderedElementsAre("out.weight", "out.bias", "out_1.weight", "out_1.bias"));
  EXPECT_THAT(message_of([] {
                const std::vector<Layer> layers{layer_of("body", torch::nn::Linear(4, 4)),
                                                layer_of("body.first", torch::nn::Linear(4, 4))};
                initialize(pipe::Module(layers, kOne), {.config = kConfig});
              }),
              HasSubstr("layer 'body.first' has a name inside that of layer 'body'"));
}

TEST(PipeModule, ASourceMayFillTheSameTensorsAgain) {
  std::vector<double> losses;
  for (const bool is_kept : {false, true}) {
    const auto engine = initialize(pipe::Module(make_net({.dropout = 0}), kOne), {.config = kConfig}).engine;
    int64_t number = 0;
    pipe::MicroBatch kept = words_of(0, 0, 1);
    losses.push_back(engine->train_batch([&] {
      const pipe::MicroBatch next = words_of(9 * number++, 0, 1);
      if (!is_kept) return next;
      kept.inputs[0].copy_(next.inputs[0]);
      kept.labels[0].copy_(next.labels[0]);
      return kept;
    }));
  }
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(PipeModule, AnEvaluationThatFailsLeavesTheModeAsItWas) {
  const auto net = make_net();
  const auto engine = initialize(pipe::Module(net, kOne), {.config = kConfig}).engine;
  EXPECT_THAT(message_of([&] { engine->eval_batch([]() -> std::optional<pipe::MicroBatch> { return std::nullopt; }); }),
              HasSubstr("eval_batch() takes 3 micro-batches, and the data ended after 0"));
  EXPECT_TRUE(net->is_training());
  engine->train_batch(endless());
  Dict config = kConfig;
  config["gannet"] = Dict{{"leftover_micro_batches", "step"}};
  EXPECT_THAT(message_of([&] { initialize(pipe::Module(make_net(), kOne), {.config = config}); }),
              HasSubstr("\"carry\" or \"drop\""));
}

TEST(PipeModule, LazyModulesOfARefusedListCanBeUsedAgain) {
  const Lazy<torch::nn::Linear> first(4, 4), second(4, 4);
  const auto make = [&](const std::string& name) {
    const auto loss = [](const at::Tensor& y, const at::Tensor& target) { return torch::mse_loss(y, target); };
    return initialize(pipe::Module({layer_of("h", first), layer_of(name, second)}, {.num_stages = 1, .loss_fn = loss}),
                      {.config = kConfig})
        .engine;
  };
  EXPECT_THAT(message_of([&] { make("h.0"); }), HasSubstr("has a name inside that of layer 'h'"));
  EXPECT_FALSE(first.is_built());
  EXPECT_THAT(message_of([&] { first->weight.numel(); }), HasSubstr("is not built on this rank"));
  const auto engine = make("g");
  EXPECT_EQ(engine->parameter_names().size(), 4u);
  EXPECT_THAT(message_of([&] { make("f"); }), HasSubstr("belongs to the engine of another pipe::Module"));
}

}  // namespace
}  // namespace gannet::test
