// A pipeline trains as one rank does: at every ZeRO stage, with every tier, and its checkpoints are
// those of the whole model.
#include <gannet/lazy.h>
#include <gtest/gtest.h>

#include <cmath>

#include "pipeline/run.h"
#include "plugin/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect_all_succeed;
using ranks::run_ranks;

std::map<std::string, std::string> variables(const std::string& pipe, const TemporaryFolder& folder,
                                             std::map<std::string, std::string> more = {}) {
  more.insert({{"PIPE", pipe}, {"FOLDER", folder.string()}});
  return more;
}

const std::vector<std::string> kPlacements = {"0", "1", "2", "3", "2cpu", "3cpu", "3nvme"};

int64_t untied_steps() { return ranks::is_full() ? 25 : 4; }

RANK_BODY(trains_untied) {
  const std::string dtype = variable("DTYPE").empty() ? "fp32" : variable("DTYPE");
  for (const std::string& zero : dtype == "fp32" ? kPlacements : std::vector<std::string>{"1", "3"}) {
    PipeRun run(pipe_config(zero, 0, dtype),
                {.net = {.blocks = ranks::is_full() ? 8 : 4}, .recomputed_layers = std::stoll("0" + variable("RECOMPUTE"))});
    run.train(0, untied_steps());
    const std::string folder = variable("FOLDER") + "/" + variable("NAME") + zero;
    run.engine->save_checkpoint(folder, {.tag = "all"});
    run.engine->save_fp32_model(folder);
    if (!zero.starts_with("3")) run.engine->save_16bit_model(folder, "small.safetensors");
  }
}

struct Case {
  int count;  // stages
  std::string schedule, recompute;
  std::string accelerator = "";  // "": that of all tests
};

// A device whose Comm does what it is given in turn, unlike Gloo.
const std::vector<Case> kOrdered = {{2, "interleaved", "0", "fake"}, {2, "zb-v", "0", "fake"}, {4, "1f1b", "0", "fake"}};

// With GANNET_TEST_FULL, 2 and 4 stages by every schedule, with and without recomputation.
std::vector<Case> cases() {
  if (!ranks::is_full())
    return {{2, "1f1b", "0"}, {4, "gpipe", "0"}, {3, "1f1b", "2"},       {2, "interleaved", "1"},   {2, "zb-h1", "0"},
            {2, "zb-v", "1"}, {2, "auto", "0"},  {2, "dualpipe-v", "0"}, {3, "interleaved-zb", "1"}};
  std::vector<Case> all{{3, "1f1b", "2"}, {3, "zb-h1", "1"}};
  for (const int count : {2, 4})
    for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "interleaved-zb", "zb-v", "dualpipe-v", "auto"})
      for (const char* recompute : {"0", "2"}) all.push_back({count, schedule, recompute});
  return all;
}

bool are_equal(const std::string& file, const std::string& other) {
  const auto here = gannet::load_safetensors(file), there = gannet::load_safetensors(other);
  return here.size() == there.size() && std::all_of(here.begin(), here.end(), [&](const auto& one) {
           return there.contains(one.first) && there.at(one.first).equal(one.second);
         });
}

// Without a norm over several tensors and ranks, and without a weight that two stages use, nothing
// is added up in another order.
TEST(Pipeline, UntiedStagesHaveTheBitsOfOneRank) {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& name, const std::string& dtype, const Case& one) {
    const auto& [count, schedule, recompute, accelerator] = one;
    auto environment = variables(std::to_string(count), folder,
                                 {{"DTYPE", dtype},
                                  {"SCHEDULE", schedule},
                                  {"RECOMPUTE", recompute},
                                  {"NAME", name},
                                  {"MICRO_BATCHES", ranks::is_full() ? "8" : "4"}});
    if (!accelerator.empty()) environment["GANNET_TEST_ACCELERATOR"] = accelerator;
    const auto outcomes = run_ranks("trains_untied", count, {.environment = environment});
    expect_all_succeed(outcomes);
    if (schedule == "auto")
      EXPECT_NE(outcomes[0].output.find("pipeline schedule, chosen for the measured times: "), std::string::npos)
          << outcomes[0].output;
    return outcomes;
  };
  for (const std::string dtype : {"fp32", "bf16"}) {
    const auto whole = figures_in(run("one" + dtype, dtype, {1, "1f1b", "0"}));
    ASSERT_EQ(whole.size(), (dtype == "fp32" ? kPlacements.size() : 2) * static_cast<size_t>(untied_steps()) * 2);
    std::vector<Case> all = cases();
    if (dtype == "fp32") all.insert(all.end(), kOrdered.begin(), kOrdered.end());
    for (const Case& one : all) {
      const auto& [count, schedule, recompute, accelerator] = one;
      if (dtype == "bf16" && count != 3 && !ranks::is_full()) continue;
      const std::string name = std::to_string(count) + schedule + recompute + dtype + accelerator;
      const auto found = figures_in(run(name, dtype, one));
      ASSERT_EQ(found.size(), whole.size()) << name;
      for (size_t i = 0; i < whole.size(); i += 2) {
        EXPECT_DOUBLE_EQ(found[i], whole[i]) << name << ", loss " << i / 2;
        EXPECT_NEAR(found[i + 1], whole[i + 1], 1e-6 * whole[i + 1]) << name << ", norm " << i / 2;
      }
      for (const std::string& zero : dtype == "fp32" ? kPlacements : std::vector<std::string>{"1", "3"}) {
        const auto expected = tensors_of(folder.string() + "/one" + dtype + zero, "all"),
                   saved = tensors_of(folder.string() + "/" + name + zero, "all");
        EXPECT_EQ(saved.size(), expected.size());
        for (const auto& [key, tensor] : expected) {
          ASSERT_TRUE(saved.contains(key)) << key;
          EXPECT_TRUE(saved.at(key).equal(tensor)) << key << ", " << name << ", ZeRO " << zero;
        }
        for (const char* file : {"/model.safetensors", "/small.safetensors"})
          if (!zero.starts_with("3") || file[1] == 'm')
            EXPECT_TRUE(are_equal(folder.string() + "/" + name + zero + file, folder.string() + "/one" + dtype + zero + file))
                << file << ", " << name << ", ZeRO " << zero;
      }
    }
  }
}

RANK_BODY(trains_tied) {
  for (const std::string& zero : kPlacements) {
    PipeRun run(pipe_config(zero, 0.5), {.net = {.dropout = 0, .is_tied = true}});
    run.train(0, 4);
    run.engine->save_checkpoint(variable("FOLDER") + "/" + variable("NAME") + zero, {.tag = "all"});
  }
}
TEST(Pipeline, TiedAndClippedStagesOverSeveralRanksAlongDataAreWithinRounding) {
  const TemporaryFolder folder;
  const auto run = [&](int count, const std::string& pipe, const std::string& schedule) {
    const std::string name = schedule + pipe + std::to_string(count);
    const auto outcomes =
        run_ranks("trains_tied", count, {.environment = variables(pipe, folder, {{"NAME", name}, {"SCHEDULE", schedule}})});
    expect_all_succeed(outcomes);
    return figures_in(outcomes);
  };
  const auto whole = run(1, "1", "1f1b");
  ASSERT_EQ(whole.size(), kPlacements.size() * 4 * 2);
  for (const auto& [count, schedule] : {std::pair{2, "1f1b"}, {4, "1f1b"}, {4, "interleaved"}}) {
    const auto found = run(count, "2", schedule);
    ASSERT_EQ(found.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(found[i], whole[i], 1e-5 * std::abs(whole[i])) << schedule << i;
    for (const std::string& zero : kPlacements) {
      const auto expected = tensors_of(folder.string() + "/1f1b11" + zero, "all"),
                 saved = tensors_of(folder.string() + "/" + schedule + "2" + std::to_string(count) + zero, "all");
      EXPECT_EQ(saved.size(), expected.size());
      for (const auto& [key, tensor] : expected)
        if (key.starts_with("parameter/"))
          EXPECT_LT(difference(saved.at(key), tensor), 2e-5) << key << ", " << schedule << ", ZeRO " << zero;
    }
  }
}

// A list of modules that only their stage builds: the values are those of one rank, with a weight
// that two stages use.
struct LazyNet {
  LazyNet() {
    layers.push_back(gannet::layer_of("words", table, [](torch::nn::EmbeddingImpl& table, const at::Tensor& ids) {
      return std::pair(table.forward(ids), ids > 0);
    }));
    for (int64_t i = 0; i < 4; ++i) {
      blocks.emplace_back(int64_t{16}, 0.1);
      layers.push_back(gannet::layer_of("h." + std::to_string(i), blocks.back()));
    }
    layers.push_back(gannet::function("end", [](const at::Tensor& x, const at::Tensor&) { return x; }));
    layers.push_back(gannet::layer_of(
        "head", table, [](torch::nn::EmbeddingImpl& table, const at::Tensor& x) { return at::matmul(x, table.weight.t()); }));
  }
  gannet::Lazy<torch::nn::Embedding> table{13, 16};
  std::vector<gannet::Lazy<PipeBlockImpl>> blocks;
  std::vector<gannet::Layer> layers;
};

RANK_BODY(builds_its_layers) {
  for (const std::string method : {"uniform", "parameters", "type:pipeblock"}) {
    const LazyNet net;
    torch::manual_seed(3);
    const auto engine =
        gannet::initialize(
            gannet::pipe::Module(
                net.layers,
                {.num_stages = stages_wanted(), .loss_fn = next_word_loss, .partition_method = method, .seed_layers = true}),
            {.config = pipe_config("1", 0.5)})
            .engine;
    const int64_t drawn = torch::randint(1000, {1}).item<int64_t>();
    torch::manual_seed(3);
    ranks::expect(torch::randint(1000, {1}).item<int64_t>() == drawn, "the program's random numbers go their own way");
    if (stages_wanted() == 2)
      ranks::expect(net.blocks[0].is_built() == engine->is_first_stage() && net.blocks[3].is_built() == engine->is_last_stage() &&
                        net.table.is_built(),
                    "what a rank builds");
    auto source = [number = int64_t{0}]() mutable { return std::optional(words_of(number++, 0, 1)); };
    for (int step = 0; step < 3; ++step) {
      const double loss = engine->train_batch(source);
      if (gannet::init_distributed()->rank() == 0) std::cout << "figure: " << std::setprecision(17) << loss << std::endl;
    }
    const auto names = engine->parameter_names();
    ranks::expect(std::find(names.begin(), names.end(), "words.weight") != names.end() || stages_wanted() == 3, "the tied name");
  }
}
TEST(Pipeline, ModulesThatTheirStageBuildsHaveTheValuesOfOneRank) {
  const TemporaryFolder folder;
  std::vector<std::vector<double>> losses;
  for (const int count : {1, 2, 3}) {
    const auto outcomes = run_ranks("builds_its_layers", count, {.environment = variables(std::to_string(count), folder)});
    expect_all_succeed(outcomes);
    losses.push_back(figures_in(outcomes));
  }
  for (const auto& found : losses) {
    ASSERT_EQ(found.size(), losses[0].size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], losses[0][i], 1e-6 * losses[0][i]) << i;
  }
}

// A checkpoint of any number of stages, ZeRO stage and tier loads at another one, with the states.
RANK_BODY(continues) {
  const std::string folder = variable("FOLDER");
  PipeRun run(pipe_config(variable("ZERO"), 0.5),
              {.net = {.dropout = 0, .is_tied = true, .seed = variable("LOAD").empty() ? 1u : 7u}});
  int64_t first = 0;
  if (!variable("LOAD").empty()) {
    run.engine->load_checkpoint(folder + "/" + variable("LOAD"));
    first = run.engine->global_steps();
  }
  run.train(first, 2);
  run.engine->save_checkpoint(folder + "/" + variable("SAVE"));
}
TEST(Pipeline, ACheckpointContinuesAtOtherStagesRanksAndTiers) {
  const TemporaryFolder folder;
  std::vector<double> figures;
  std::string from;
  struct Leg {
    int count;
    const char* pipe;
    const char* zero;
  };
  for (const Leg& leg : {Leg{2, "2", "1"}, {1, "1", "0"}, {4, "2", "3"}, {2, "1", "2cpu"}, {4, "4", "2"}}) {
    const std::string to = std::to_string(leg.count) + leg.pipe + leg.zero;
    const auto outcomes = run_ranks(
        "continues", leg.count, {.environment = variables(leg.pipe, folder, {{"ZERO", leg.zero}, {"LOAD", from}, {"SAVE", to}})});
    expect_all_succeed(outcomes);
    for (const double figure : figures_in(outcomes)) figures.push_back(figure);
    from = to;
  }
  std::vector<double> whole;
  from.clear();
  for (int leg = 0; leg < 5; ++leg) {
    const std::string to = "whole" + std::to_string(leg);
    const auto outcomes =
        run_ranks("continues", 1, {.environment = variables("1", folder, {{"ZERO", "0"}, {"LOAD", from}, {"SAVE", to}})});
    expect_all_succeed(outcomes);
    for (const double figure : figures_in(outcomes)) whole.push_back(figure);
    from = to;
  }
  ASSERT_EQ(figures.size(), 5u * 2 * 2);
  ASSERT_EQ(whole.size(), figures.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(figures[i], whole[i], 2e-5 * whole[i]) << i;
}

}  // namespace
