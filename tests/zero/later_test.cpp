// Features of ABI 2.1 for optimizers: random numbers that do not depend on how the group is cut, a
// workspace, squares of a tensor's rows and columns.
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "engine/impl.h"
#include "plugin/support.h"
#include "zero/support.h"
#include "zero/uneven.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::Value;
using ranks::expect;
using ranks::run_ranks;

Dict later_config(const std::string& optimizer, int64_t stage = 0, const std::string& states = "none", const Dict& own = {},
                  const Dict& params = {}) {
  Dict zero{{"stage", stage}, {"reduce_bucket_size", 400}, {"sub_group_size", 4096}, {"stage3_param_persistence_threshold", 40}};
  if (states != "none") {
    Dict tier{{"device", states}};
    if (states == "nvme") tier["nvme_path"] = variable("FOLDER");
    zero["offload_optimizer"] = tier;
  }
  Dict config = config_with({{"zero_optimization", zero}, {"gradient_clipping", 0.0}});
  config["optimizer"] = Dict{{"type", optimizer}, {"params", params}};
  config["plugins"] = Dict{{"path", gannet::List{Value(LATER_PLUGIN)}}};
  if (!own.empty()) config["gannet"] = own;
  return config;
}

auto engine_with(const Dict& config) { return gannet::initialize(make_uneven(), {.config = config}).engine; }

// The same samples on every rank, so that the mean gradient does not depend on their number.
template <class Engine>
at::Tensor trained(Engine& engine, int64_t steps, int64_t first = 0) {
  for (int64_t step = first; step < first + steps; ++step) {
    auto [x, y] = make_batch(step, 4);
    engine.backward(engine.forward(x, y));
    engine.step();
  }
  return parameters_of(engine);
}

const std::pair<int64_t, const char*> kPlaces[] = {{0, "none"}, {1, "none"}, {1, "cpu"}, {2, "none"},
                                                   {2, "nvme"}, {3, "none"}, {3, "cpu"}, {3, "nvme"}};

// Bit for bit at every stage and on every tier, and for the test's other numbers of ranks.
void same_everywhere(const std::string& optimizer) {
  auto world = gannet::test::world();
  const at::Tensor expected = trained(*engine_with(later_config(optimizer)), 4);
  for (const auto& [stage, states] : kPlaces) {
    const at::Tensor found = trained(*engine_with(later_config(optimizer, stage, states)), 4);
    expect(found.equal(expected),
           "stage " + std::to_string(stage) + " on " + states + " is off by " + std::to_string(difference(found, expected)));
  }
  const at::Tensor watched = trained(*engine_with(later_config(optimizer, 2, "none", {{"debug_plugins", true}})), 4);
  expect(watched.equal(expected), "watched it computes the same");
  if (world->rank() == 0) torch::save(expected, variable("FOLDER") + "/of" + std::to_string(world->size()) + ".pt");
}
RANK_BODY(noisy_everywhere) { same_everywhere("Noisy"); }
RANK_BODY(shampoo_everywhere) { same_everywhere("Shampoo"); }

RANK_BODY(noisy_seeds) {
  auto world = gannet::test::world();
  const auto of = [](const Dict& own) { return trained(*engine_with(later_config("Noisy", 1, "none", own)), 3); };
  const at::Tensor one = of({});
  expect(one.equal(of({{"seed", 0}})), "the seed is the config's");
  expect(!one.equal(of({{"seed", 5}})), "another seed gives other numbers");
}

// From any stage to any; the run's seed is the checkpoint's, not that of the current config.
void resumes(const std::string& optimizer) {
  auto world = gannet::test::world();
  const at::Tensor expected = trained(*engine_with(later_config(optimizer, 0, "none", {{"seed", 9}})), 6);
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 0}, {2, 0}, {3, 1}, {0, 3}}) {
    const std::string tag = "from" + std::to_string(from);
    auto before = engine_with(later_config(optimizer, from, "none", {{"seed", 9}}));
    trained(*before, 3);
    before->save_checkpoint(variable("FOLDER"), {.tag = tag});
    before.reset();
    auto after = engine_with(later_config(optimizer, to, "none", {{"seed", 4}}));
    after->load_checkpoint(variable("FOLDER"), {.tag = tag});
    expect(trained(*after, 3, 3).equal(expected), "stage " + std::to_string(from) + " to " + std::to_string(to));
  }
}
RANK_BODY(noisy_resumes) { resumes("Noisy"); }
RANK_BODY(shampoo_resumes) { resumes("Shampoo"); }

// Each rank keeps only the squares of its own tensors.
RANK_BODY(shampoo_squares) {
  auto world = gannet::test::world();
  const auto count_of = [&](int64_t stage) {
    auto engine = engine_with(later_config("Shampoo", stage));
    trained(*engine, 1);
    const gannet::Group& group = engine->impl().groups[0];
    expect(group.squares.size() == 3 && group.squares[1].empty(), "squares are those of two states");
    double count = 0;
    for (const auto& of_state : group.squares)
      for (const at::Tensor& square : of_state) count += square.defined() ? static_cast<double>(square.numel()) : 0;
    double all = count;
    engine->impl().host_group->all_reduce(&all, 1);
    return std::pair(count, all);
  };
  // 37x8 has both sides, 300x37 only its columns', 4x300 only its rows': 300 rows are more than 64.
  const double whole = 37 * 37 + 8 * 8 + 37 * 37 + 4 * 4;
  expect(count_of(0).first == whole, "without sharding every rank has all");
  for (const int64_t stage : {1, 2, 3}) {
    const auto [mine, all] = count_of(stage);
    expect(mine < whole, "a rank has its own tensors' alone at stage " + std::to_string(stage));
    expect(all == whole, "together they have each once at stage " + std::to_string(stage));
  }
}

// The optimizer that comes has squares, and the one that was there had none; and back.
RANK_BODY(shampoo_swapped) {
  auto world = gannet::test::world();
  const auto swapped = [&](int64_t stage) {
    auto engine = engine_with(later_config("Shampoo", stage));
    trained(*engine, 2);
    auto receipt = engine->swap_optimizer("Shampoo", Dict{{"limit", 64}, {"lr", 1e-3}});
    expect(receipt.kept.size() == 3, "the same states continue: " + receipt.to_string());
    trained(*engine, 1, 2);
    receipt = engine->swap_optimizer("Shampoo", Dict{{"limit", 8}});
    expect(receipt.filled.size() == 2, "squares of another limit begin again: " + receipt.to_string());
    return trained(*engine, 2, 3);
  };
  expect(swapped(2).equal(swapped(0)), "at stages 0 and 2");
}

RANK_BODY(shampoo_reference) {
  auto world = gannet::test::world();
  const at::Tensor found = trained(*engine_with(later_config("Shampoo", 0, "none", {}, {{"lr", 0.02}})), 8);
  auto model = make_uneven();
  struct Sides {
    at::Tensor left, right;
  };
  std::map<std::string, Sides> sides;
  const auto root = [](const at::Tensor& matrix) {
    const auto [values, vectors] = at::linalg_eigh(matrix);
    return vectors.matmul(values.pow(-0.25).diag()).matmul(vectors.t());
  };
  for (int64_t step = 0; step < 8; ++step) {
    auto [x, y] = make_batch(step, 4);
    model->zero_grad();
    model->forward(x, y).backward();
    const torch::NoGradGuard no_grad;
    for (auto& entry : model->named_parameters()) {
      at::Tensor g = entry.value().grad().to(torch::kDouble);
      if (g.dim() == 2) {
        auto& [left, right] = sides[entry.key()];
        const auto start = [](int64_t n) { return torch::eye(n, torch::kDouble) * 1e-2; };
        if (step == 0 && g.size(0) <= 64) left = start(g.size(0));
        if (step == 0 && g.size(1) <= 64) right = start(g.size(1));
        if (left.defined()) left += g.matmul(g.t());
        if (right.defined()) right += g.t().matmul(g);
        if (left.defined()) g = root(left).matmul(g);
        if (right.defined()) g = g.matmul(root(right));
      }
      entry.value().sub_((0.02 * g).to(torch::kFloat));
    }
  }
  const double off = difference(found, flat_parameters(*model));
  expect(off < 1e-5, "off by " + std::to_string(off));
}

RANK_BODY(wrong_descriptions) {
  auto world = gannet::test::world();
  for (const auto& [what, message] : {std::pair{"limit", "a square with a limit of 20000 rows, which must be from 1 to 16384"},
                                      {"parts", "is a square, which takes the capability NEEDS_WHOLE_TENSOR"},
                                      {"a limit of another", "has a limit, and is neither a square nor a factor"},
                                      {"unclaimed", "asks for a workspace, which takes the capability USES_WORKSPACE"},
                                      {"no bytes", "claims USES_WORKSPACE, and asks for a workspace of no bytes"},
                                      {"many bytes", "and 5000 for each element, at most"}})
    contains(message_of([&, what = what] { engine_with(later_config("Wrong", 0, "none", {}, {{"what", what}})); }), message);
}

class LaterContract : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    ranks::expect_all_succeed(run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}}));
  }
  void expect_same_on_two_ranks(const std::string& body) {
    run(body, 1);
    run(body, 2);
    at::Tensor of[2];
    torch::load(of[0], (folder_ / "of1.pt").string());
    torch::load(of[1], (folder_ / "of2.pt").string());
    EXPECT_TRUE(of[1].equal(of[0])) << "off by " << difference(of[1], of[0]);
  }
  const TemporaryFolder folder_;
};

TEST_F(LaterContract, RandomNumbersAreTheSameAtEveryStageOnEveryTierAndOnTwoRanks) {
  expect_same_on_two_ranks("noisy_everywhere");
}
TEST_F(LaterContract, RandomNumbersComeFromTheConfigsSeed) { run("noisy_seeds", 1); }
TEST_F(LaterContract, RandomNumbersContinueInARunThatResumes) { run("noisy_resumes", 2); }
TEST_F(LaterContract, SquaresTrainTheSameAtEveryStageOnEveryTierAndOnTwoRanks) { expect_same_on_two_ranks("shampoo_everywhere"); }
TEST_F(LaterContract, SquaresLieWhereTheirTensorIs) { run("shampoo_squares", 2); }
TEST_F(LaterContract, SquaresAreResumedFromAnyStageToAny) { run("shampoo_resumes", 2); }
TEST_F(LaterContract, SquaresFollowASwap) { run("shampoo_swapped", 2); }
TEST_F(LaterContract, ASmallShampooAgreesWithItsReference) { run("shampoo_reference", 1); }
TEST_F(LaterContract, DescriptionsThatContradictThemselvesAreRefused) { run("wrong_descriptions", 1); }

}  // namespace
