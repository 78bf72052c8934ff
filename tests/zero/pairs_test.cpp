// Every stage with every offload that is legal for it, on models with tied embeddings and with batch norm, against stage 0:
// chosen so that each value of a choice meets each value of every other. Eight run here, all of them with GANNET_TEST_FULL.
#include <gannet/gannet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "zero/pairwise.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;

struct GptImpl : torch::nn::Module {
  GptImpl() {
    words = register_module("words", torch::nn::Embedding(61, 32));
    places = register_parameter("places", 0.1 * torch::randn({12, 32}));
    for (int i = 0; i < 2; ++i)
      blocks.push_back(register_module(
          "block" + std::to_string(i),
          torch::nn::TransformerEncoderLayer(torch::nn::TransformerEncoderLayerOptions(32, 2).dim_feedforward(64).dropout(0))));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({32})));
  }
  at::Tensor forward(const at::Tensor& ids) {  // [batch, 13]
    at::Tensor h = (words(ids.slice(1, 0, 12)) + places).transpose(0, 1);
    for (auto& block : blocks) h = block(h);
    const at::Tensor logits = torch::matmul(norm(h), words->weight.t());
    return torch::nn::functional::cross_entropy(logits.to(torch::kFloat).flatten(0, 1),
                                                ids.slice(1, 1, 13).transpose(0, 1).flatten());
  }
  torch::nn::Embedding words{nullptr};
  at::Tensor places;
  std::vector<torch::nn::TransformerEncoderLayer> blocks;
  torch::nn::LayerNorm norm{nullptr};
};

struct CnnImpl : torch::nn::Module {
  CnnImpl() {
    // Without biases: before a batch norm their gradient is rounding noise, which Adam makes as large as any other.
    first = register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).bias(false)));
    first_norm = register_module("first_norm", torch::nn::BatchNorm2d(8));
    second = register_module("second", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 24, 3).bias(false)));
    second_norm = register_module("second_norm", torch::nn::BatchNorm2d(24));
    classes = register_module("classes", torch::nn::Linear(24 * 4, 10));
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor h = (ids.slice(1, 0, 12).repeat({1, 12}).view({-1, 1, 12, 12}).to(classes->weight.scalar_type()) - 30) / 20;
    h = torch::max_pool2d(torch::relu(first_norm(first(h))), 2);
    h = torch::relu(second_norm(second(h))).slice(2, 0, 2).slice(3, 0, 2).flatten(1);
    return torch::nn::functional::cross_entropy(classes(h).to(torch::kFloat), ids.select(1, 12).remainder(10));
  }
  torch::nn::Conv2d first{nullptr}, second{nullptr};
  torch::nn::BatchNorm2d first_norm{nullptr}, second_norm{nullptr};
  torch::nn::Linear classes{nullptr};
};

struct Placement {
  int64_t stage;
  const char *states, *parameters;
};
constexpr Placement kPlacements[] = {{1, "none", "none"}, {1, "cpu", "none"},  {1, "nvme", "none"}, {2, "none", "none"},
                                     {2, "cpu", "none"},  {2, "nvme", "none"}, {3, "none", "none"}, {3, "cpu", "none"},
                                     {3, "nvme", "none"}, {3, "none", "cpu"},  {3, "none", "nvme"}, {3, "cpu", "cpu"},
                                     {3, "cpu", "nvme"},  {3, "nvme", "cpu"},  {3, "nvme", "nvme"}};

// A choice for each of: placement, ranks, model, dtype, overlap, bucket.
using Combination = std::array<int, 6>;
constexpr Combination kPairValues = {std::size(kPlacements), 3, 2, 2, 2, 2};
constexpr int kPairRanks[] = {1, 2, 4};

int number_of(const char* name) { return std::atoi(std::getenv(name)); }

// The parameters after 25 steps, and every loss.
template <class Model>
std::pair<at::Tensor, std::vector<double>> train(const Placement& placement, bool is_bf16, bool overlaps, bool small_buckets) {
  Dict config = config_with({{"gradient_clipping", 1.0}});
  config["optimizer"] = Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-3}, {"eps", 1e-6}, {"weight_decay", 0.1}}}};
  Dict zero{{"stage", placement.stage}, {"reduce_bucket_size", small_buckets ? 3000 : 500'000'000}, {"sub_group_size", 8192}};
  if (placement.stage == 3) {
    zero["stage3_param_persistence_threshold"] = small_buckets ? 0 : 100;
    zero["stage3_prefetch_bucket_size"] = overlaps ? 5000 : 0;
    zero["stage3_max_reuse_distance"] = overlaps ? 3000 : 0;
  }
  const std::string drive = std::getenv("FOLDER");
  if (placement.states != std::string("none"))
    zero["offload_optimizer"] = Dict{{"device", placement.states}, {"nvme_path", drive}};
  if (placement.parameters != std::string("none"))
    zero["offload_param"] = Dict{{"device", placement.parameters}, {"nvme_path", drive}, {"max_in_cpu", 0}};
  config["zero_optimization"] = zero;
  if (is_bf16) {
    config["bf16"] = Dict{{"enabled", true}};
    config["data_types"] = Dict{{"buffer_dtype", "bf16"}};
  }
  torch::manual_seed(5);
  auto engine = gannet::initialize(std::make_shared<Model>(), {.config = config}).engine;
  std::vector<double> losses;
  for (int64_t step = 0; step < 25; ++step) {
    auto generator =
        at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step * engine->world_size() + engine->rank()));
    const auto loss = engine->forward(torch::randint(0, 61, {4, 13}, generator, torch::kLong));
    losses.push_back(loss.template item<double>());
    engine->backward(loss);
    engine->step();
  }
  return {parameters_of(*engine), losses};
}

template <class Model>
void compare() {
  const Placement& placement = kPlacements[number_of("PLACEMENT")];
  const bool is_bf16 = number_of("BF16"), overlaps = number_of("OVERLAPS"), small_buckets = number_of("SMALL");
  const auto [found, losses] = train<Model>(placement, is_bf16, overlaps, small_buckets);
  const bool same_order = gannet::init_distributed()->size() <= 2;  // a sum of two has one order
  // Parameters on a drive are cut where direct I/O can begin: on more ranks each ring then begins elsewhere.
  const bool same_cut = same_order || placement.parameters != std::string("nvme");
  const auto [same_stage, same_losses] =
      train<Model>(same_cut ? Placement{placement.stage, "none", "none"} : placement, is_bf16, !overlaps, small_buckets);
  expect(torch::equal(found, same_stage) && losses == same_losses, "offload and overlap change no bit");
  const auto [plain, unused] = train<Model>({0, "none", "none"}, is_bf16, overlaps, small_buckets);
  const double apart = difference(found, plain);
  if (same_order && !is_bf16)
    expect(apart == 0, "stages add in the same order on two ranks: " + std::to_string(apart * 1e9) + "e-9 apart");
  expect(apart < (is_bf16 ? 2e-2 : 1e-6), "against stage 0: " + std::to_string(apart * 1e9) + "e-9 apart");
}

RANK_BODY(pair) {
  gannet::init_distributed({.timeout_seconds = 60});
  number_of("CNN") ? compare<CnnImpl>() : compare<GptImpl>();
}

TEST(Pairs, EveryStageAndTierTrainsAsStage0Does) {
  const std::string folder = std::filesystem::current_path() / ("pairs-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::vector<Combination> cases = pairwise<6>(kPairValues);
  std::cout << cases.size() << " cases\n";
  if (!ranks::is_full()) cases.resize(8);
  for (const Combination& one : cases) {
    const auto& placement = kPlacements[one[0]];
    SCOPED_TRACE("stage " + std::to_string(placement.stage) + ", states on " + placement.states + ", parameters on " +
                 placement.parameters + ", " + std::to_string(kPairRanks[one[1]]) + " ranks, " + (one[2] ? "cnn" : "gpt") +
                 (one[3] ? ", bf16" : ", fp32") + (one[4] ? ", overlap" : "") + (one[5] ? ", small buckets" : ""));
    ranks::expect_all_succeed(run_ranks("pair", kPairRanks[one[1]],
                                        {.environment = {{"PLACEMENT", std::to_string(one[0])},
                                                         {"CNN", std::to_string(one[2])},
                                                         {"BF16", std::to_string(one[3])},
                                                         {"OVERLAPS", std::to_string(one[4])},
                                                         {"SMALL", std::to_string(one[5])},
                                                         {"FOLDER", folder}}}));
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
