// The calls of a pipeline's engine on several ranks: what stages report, evaluate and refuse.
#include <gannet/lazy.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "config/parse.h"
#include "pipeline/run.h"
#include "plugin/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::Error;
using gannet::Value;
using ranks::expect;
using ranks::expect_all_succeed;
using ranks::run_ranks;
namespace pipe = gannet::pipe;
namespace fs = std::filesystem;

// The first stage's optimizer uses the loss, which the last stage has: both take part in its mean.
RANK_BODY(one_stage_uses_the_loss) {
  Dict config = pipe_config("1");
  config["optimizer"] = Dict{{"type", "LossOfFirst"}, {"params", Dict{}}};
  config["plugins"] = Dict{{"path", gannet::List{Value(FACTS_PLUGIN)}}};
  PipeRun run(config, {});
  run.train(0, 2);
}
TEST(PipelineCalls, AnOptimizerUsesTheLossOnOneStageAlone) {
  expect_all_succeed(run_ranks("one_stage_uses_the_loss", 2, {.environment = {{"PIPE", "2"}}}));
}

RANK_BODY(evaluates_in_stages) {
  PipeRun run(pipe_config("1"), {});
  run.train(0, 1);
  const auto world = gannet::init_distributed();
  expect(run.engine->num_stages() == 2 && run.engine->stage_id() == world->rank() / 2, "stages come first");
  const bool is_v = variable("SCHEDULE") == "zb-v";  // the first stage has the first and the last layers
  expect(run.engine->is_first_stage() == (world->rank() < 2) && run.engine->is_last_stage() == (world->rank() < 2) == is_v,
         "its place");
  expect(run.engine->topology().get_dim("pipe") == 2 && run.engine->topology().get_dim("data") == 2, "the topology");
  const pipe::EvalResult result = run.engine->eval_batch(run.source(9), {.return_logits = true});
  expect(result.loss.has_value() && result.logits.size() == (run.engine->is_last_stage() ? 4u : 0u), "what each stage gets");
  std::cout << "figure: " << std::setprecision(17) << *result.loss << std::endl;
  const pipe::EvalResult quiet = run.engine->eval_batch(run.source(9), {.bcast_loss = false, .num_micro_batches = 1});
  expect(quiet.loss.has_value() == run.engine->is_last_stage(), "the loss stays on the last stage");
  // The losses of this rank's micro-batches, on every stage.
  const pipe::EvalResult each = run.engine->eval_batch(run.source(9), {.reduce_output = pipe::EvalOptions::Reduce::kNone});
  const double mean = run.engine->mean(std::accumulate(each.losses.begin(), each.losses.end(), 0.0) / 4);
  expect(each.losses.size() == 4 && std::abs(mean - *result.loss) < 1e-12, "each loss");
  run.train(1, 1);
}
TEST(PipelineCalls, EveryStageGetsTheMeanLossOfAnEvaluation) {
  const TemporaryFolder folder;
  std::vector<double> losses;
  for (const char* schedule : {"1f1b", "zb-v"}) {
    const auto outcomes = run_ranks("evaluates_in_stages", 4,
                                    {.environment = {{"PIPE", "2"}, {"FOLDER", folder.string()}, {"SCHEDULE", schedule}}});
    expect_all_succeed(outcomes);
    for (const auto& outcome : outcomes) {
      const auto figures = figures_in({outcome});
      losses.push_back(figures[outcome.output == outcomes[0].output ? 2 : 0]);
    }
  }
  for (const double loss : losses) EXPECT_EQ(loss, losses[0]);
}

// Stage 0 runs its forwards ahead; the order of 1f1b, written by the program.
struct OneAhead : pipe::PipeSchedule {
  using PipeSchedule::PipeSchedule;
  std::vector<std::vector<pipe::Instruction>> steps() const override {
    std::vector<std::vector<pipe::Instruction>> steps;
    const auto forward = [&](int64_t i) {
      steps.push_back({is_first_stage() ? pipe::LoadMicroBatch(i) : pipe::RecvActivation(i), pipe::ForwardPass(i)});
      if (!is_last_stage()) steps.back().push_back(pipe::SendActivation(i));
    };
    const auto backward = [&](int64_t i) {
      steps.emplace_back();
      if (!is_last_stage()) steps.back().push_back(pipe::RecvGrad(i));
      steps.back().push_back(pipe::BackwardPass(i));
      if (!is_first_stage()) steps.back().push_back(pipe::SendGrad(i));
    };
    if (!is_last_stage()) forward(0);
    for (int64_t i = 0; i < num_micro_batches(); ++i) {
      if (is_last_stage()) forward(i);
      if (!is_last_stage() && i + 1 < num_micro_batches()) forward(i + 1);
      backward(i);
    }
    return steps;
  }
};

// The parts of a file are where it says: here stage 1 has the first part and the last, and stage 0
// the two between.
constexpr const char* kCsv =
    "1F0,2F0,1F1,2F1,2B0,1I0,1F2,2F2,2B1,1W0,1B1,1F3,2F3,2B2,1B2,2B3,1B3\n"
    "0F0,0F1,3F0,3I0,0F2,3F1,3B1,3W0,0B0,0F3,3F2,0B1,3B2,3F3,3B3,0B2,0B3\n";

RANK_BODY(trains_by_other_schedules) {
  const std::string folder = variable("FOLDER"), path = folder + "/mine.csv";
  const auto rank = gannet::init_distributed()->rank();
  if (rank == 0) std::ofstream(path) << kCsv;
  gannet::init_distributed()->barrier();
  const auto trained = [&](const std::string& configured, const pipe::MakeSchedule& make) {
    Dict config = pipe_config("1");
    config["gannet"] = Dict{{"pipeline", Dict{{"schedule", configured}}}};
    const auto net = std::make_shared<PipeNetImpl>(PipeNetImpl::How{});
    const auto engine = gannet::initialize(pipe::Module(net, {.num_stages = stages_wanted(),
                                                              .loss_fn = next_word_loss,
                                                              .partition_method = "uniform",
                                                              .schedule = make,
                                                              .seed_layers = true}),
                                           {.config = config})
                            .engine;
    auto source = [number = int64_t{0}]() mutable { return std::optional(words_of(number++, 0, 1)); };
    double loss = 0;
    for (int step = 0; step < 3; ++step) loss = engine->train_batch(source);
    if (configured.ends_with("csv"))
      expect(engine->is_first_stage() == (rank == 1) && engine->is_last_stage() == (rank == 1),
             "the parts are where the file says");
    return loss;
  };
  const double expected = trained("1f1b", {});
  expect(trained("1f1b", pipe::schedule<OneAhead>()) == expected, "a schedule of the program");
  expect(trained(path, {}) == expected, "a file");
  contains(message_of([&] { trained(rank == 0 ? path : folder + "/other.csv", {}); }),
           "other.csv' is not a readable schedule file");
  contains(message_of([&] {
             trained("1f1b", [&](int64_t micro_batches, int64_t stages, int64_t stage) -> std::unique_ptr<pipe::PipeSchedule> {
               if (rank == 1) throw Error(gannet::ErrorCode::kArgument, "not on this rank", "");
               return std::make_unique<OneAhead>(micro_batches, stages, stage);
             });
           }),
           "not on this rank");
}
TEST(PipelineCalls, FilesAndProgramsGiveSchedules) {
  const TemporaryFolder folder;
  expect_all_succeed(run_ranks("trains_by_other_schedules", 2, {.environment = {{"PIPE", "2"}, {"FOLDER", folder.string()}}}));
}

RANK_BODY(reports_in_stages) {
  const std::string folder = variable("FOLDER");
  Dict config = pipe_config("0");
  config["gannet"] = Dict{{"metrics", Dict{{"path", folder + "/metrics.jsonl"}}},
                          {"trace", Dict{{"path", folder + "/trace.json"}, {"first_step", 2}, {"last_step", 3}}}};
  PipeRun run(config, {.net = {.is_tied = true}});
  run.train(0, 3);
}
TEST(PipelineCalls, MetricsHaveTheMeanLossAndEachStageItsTrace) {
  const TemporaryFolder folder;
  const auto outcomes = run_ranks("reports_in_stages", 2, {.environment = {{"PIPE", "2"}, {"FOLDER", folder.string()}}});
  expect_all_succeed(outcomes);
  const auto figures = figures_in(outcomes);
  std::ifstream metrics(folder.string() + "/metrics.jsonl");
  std::string line, all;
  size_t step = 0;
  while (std::getline(metrics, line)) {
    all += line + "\n";
    const gannet::Value document = gannet::config::parse_value(line);
    const gannet::Value* const loss = document.as_dict().find("loss");
    if (!loss) continue;
    ASSERT_TRUE(loss->is_number()) << line;
    EXPECT_NEAR(loss->as_number(), figures[2 * step++], 1e-6);
  }
  EXPECT_EQ(step, 3u) << all;
  PipeNetImpl whole(PipeNetImpl::How{.is_tied = true});
  int64_t parameters = 0;
  for (const auto& parameter : whole.parameters()) parameters += parameter.numel();
  EXPECT_THAT(all, testing::HasSubstr("\"parameters\": " + std::to_string(parameters)));
  for (const char* name : {"trace.json", "trace.rank1.json"}) EXPECT_TRUE(fs::exists(folder.string() + "/" + name)) << name;
}

RANK_BODY(refuses_in_stages) {
  PipeRun run(pipe_config("1"), {});
  run.train(0, 1);
  const bool leads = run.engine->is_first_stage();
  contains(message_of([&] { run.engine->train_batch(run.source(leads ? 4 : 5)); }),
           "ranks 0 and 1, the first and the last stage of a pipeline, drew different labels");
  int64_t number = 4;
  const pipe::Source short_source = [&]() -> std::optional<pipe::MicroBatch> {
    if (leads && number == 6) return std::nullopt;
    return words_of(number++, 0, 1);
  };
  contains(message_of([&] { run.engine->train_batch(short_source); }),
           "rank 0: train_batch() takes 4 micro-batches, and the data ended after 2");
  contains(message_of([&] { run.engine->step(); }), "call train_batch()");
  if (!leads) run.engine->set_lr(5e-3);
  contains(message_of([&] { run.engine->train_batch(run.source(4)); }),
           "rank 0 has the learning rates [0.01], and rank 1 has [0.005]");
  run.engine->set_lr(1e-2);
  expect(run.engine->global_steps() == 1, "nothing was begun");
  run.train(1, 2);
}
TEST(PipelineCalls, WrongDataIsAnErrorOnEveryRankAndTrainingGoesOn) {
  const TemporaryFolder folder;
  expect_all_succeed(run_ranks("refuses_in_stages", 2, {.environment = {{"PIPE", "2"}, {"FOLDER", folder.string()}}}));
}

RANK_BODY(refuses_models) {
  const auto refused = [](const auto& make) {
    return message_of([&] { gannet::initialize(make(), {.config = pipe_config("0")}); });
  };
  const auto net = [] { return std::make_shared<PipeNetImpl>(PipeNetImpl::How{.blocks = 1}); };
  contains(refused([&] { return pipe::Module(net(), {.num_stages = 3}); }), "pipe::Module's num_stages");
  contains(refused([&] { return pipe::Module(net(), {.num_stages = 2, .partition_method = "type:conv"}); }), "finds no layer");
  contains(refused([&] {
             auto whole = net();
             const auto both = gannet::function("twice", {whole->blocks[0]}, [](const at::Tensor& x) { return x; });
             return pipe::Module(std::make_shared<pipe::ModuleImpl>(
                 whole,
                 std::vector<gannet::Layer>{
                     both, gannet::layer_of("words", whole->words), gannet::layer_of("norm", whole->norm),
                     gannet::function("again", {whole->blocks[0], whole->head.ptr()}, [](const at::Tensor& x) { return x; })},
                 pipe::Options{.num_stages = 2, .partition_method = "uniform"}));
           }),
           "both use the module 'h.0', and are on the pipeline stages 0 and 1");
}
TEST(PipelineCalls, WrongModelsAreRefusedOnEveryRank) { expect_all_succeed(run_ranks("refuses_models", 2)); }

// A parameter without dimensions and one without elements on every stage.
struct ScaledImpl : torch::nn::Module {
  ScaledImpl() {
    linear = register_module("linear", torch::nn::Linear(4, 4));
    scale = register_parameter("scale", torch::ones({}));
    none = register_parameter("none", torch::zeros({0, 3}));
  }
  at::Tensor forward(const at::Tensor& x) { return torch::tanh(linear(x)) * scale + none.sum(); }
  torch::nn::Linear linear{nullptr};
  at::Tensor scale, none;
};
std::vector<gannet::Layer> scaled_layers() {
  std::vector<gannet::Layer> layers;
  for (int i = 0; i < 3; ++i) layers.push_back(gannet::layer<ScaledImpl>("layer" + std::to_string(i)));
  return layers;
}
// Its weights are on both stages.
RANK_BODY(takes_a_divided_model_again) {
  const auto net = std::make_shared<PipeNetImpl>(PipeNetImpl::How{});
  const auto stages = [&] {
    return pipe::Module(net, {.num_stages = 2, .loss_fn = next_word_loss, .partition_method = "uniform"});
  };
  gannet::initialize(stages(), {.config = pipe_config("1")});
  for (const bool is_pipeline : {true, false}) try {
      if (is_pipeline)
        gannet::initialize(stages(), {.config = pipe_config("1")});
      else
        gannet::initialize(net, {.config = pipe_config("1")});
      expect(false, "nothing was refused");
    } catch (const Error& error) {
      expect(error.code() == gannet::ErrorCode::kOrder &&
                 std::string(error.what()).find("of a model that an earlier pipeline has divided") != std::string::npos,
             error.what());
    }
}
TEST(PipelineCalls, ADividedModelIsNotTakenForAnEmptyOne) { expect_all_succeed(run_ranks("takes_a_divided_model_again", 2)); }

RANK_BODY(saves_scalars) {
  const std::string folder = variable("FOLDER");
  const auto loss = [](const at::Tensor& y, const at::Tensor& target) { return torch::mse_loss(y, target); };
  const auto source = [number = 0]() mutable {
    const at::Tensor x = torch::sin(torch::arange(4, torch::kFloat) + number++).view({1, 4});
    return pipe::MicroBatch{{x}, {x.flip(1)}};
  };
  for (const std::string zero : {"0", "1", "2", "3"}) {
    const auto make = [&](const std::vector<gannet::Layer>& layers) {
      return gannet::initialize(
                 pipe::Module(layers, {.num_stages = stages_wanted(), .loss_fn = loss, .partition_method = "uniform"}),
                 {.config = pipe_config(zero)})
          .engine;
    };
    const auto layers = scaled_layers();
    const auto engine = make(layers);
    auto data = source;
    for (int step = 0; step < 2; ++step) engine->train_batch(data);
    engine->save_checkpoint(folder + "/" + zero);
    engine->save_fp32_model(folder + "/" + zero, "trained.safetensors", /*exclude_frozen_parameters=*/true);
    if (gannet::init_distributed()->rank() == 0)
      expect(gannet::load_safetensors(folder + "/" + zero + "/trained.safetensors").size() == 3u * 4,
             "empty parameters are trained");
    const auto other = make(scaled_layers());
    other->load_checkpoint(folder + "/" + zero);
    auto again = data;
    expect(engine->train_batch(data) == other->train_batch(again) && engine->train_batch(data) == other->train_batch(again),
           "it continues at ZeRO " + zero);
    try {
      make(layers);
      expect(false, "a list is of one engine");
    } catch (const Error& error) {
      expect(std::string(error.what()).find("belongs to the engine of another pipe::Module") != std::string::npos, error.what());
    }
  }
}
TEST(PipelineCalls, ParametersWithoutDimensionsAndElementsAreSaved) {
  for (const char* stages : {"1", "2", "3"}) {
    const TemporaryFolder folder;
    expect_all_succeed(
        run_ranks("saves_scalars", std::stoi(stages), {.environment = {{"PIPE", stages}, {"FOLDER", folder.string()}}}));
  }
}

// The config's section makes the mesh and divides the layers.
RANK_BODY(takes_the_configs_section) {
  Dict config = pipe_config("0");
  config["pipeline"] =
      Dict{{"stages", 2}, {"partition", "type:block"}, {"seed_layers", true}, {"activation_checkpoint_interval", 1}};
  const auto net = std::make_shared<PipeNetImpl>(PipeNetImpl::How{});
  const auto engine = gannet::initialize(pipe::Module(net, {.loss_fn = next_word_loss}), {.config = config}).engine;
  expect(engine->num_stages() == 2, "stages");
  expect(engine->module()->bounds() == std::vector<size_t>{0, 3, 7}, "the cut");
  expect(net->words->weight.numel() == (engine->is_first_stage() ? 13 * 16 : 0), "another stage's parameters are released");
}
TEST(PipelineCalls, TheConfigsSectionActs) {
  const auto outcomes = run_ranks("takes_the_configs_section", 2);
  expect_all_succeed(outcomes);
  EXPECT_THAT(outcomes[0].output, testing::Not(testing::HasSubstr("no effect")));
  EXPECT_THAT(outcomes[0].output, testing::HasSubstr("stage 1: ranks 1; 4 layers, 'h.2' to 'head'"));
}

}  // namespace
