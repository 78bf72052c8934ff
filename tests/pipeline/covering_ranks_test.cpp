// Stages, ranks along data, ZeRO stages and tiers, chosen so that each value of one meets each value
// of every other: each trains as one rank does, and its checkpoint continues at the next ones. Three
// of the twelve run here, all with GANNET_TEST_FULL.
#include <gtest/gtest.h>

#include <cmath>

#include "pipeline/run.h"
#include "plugin/support.h"

namespace {

using namespace gannet::test;
using ranks::expect_all_succeed;
using ranks::run_ranks;

constexpr int64_t kSteps = 20, kMore = 5;

struct Place {
  int pipe, data;
  std::string zero;
  std::string name() const { return std::to_string(pipe) + "x" + std::to_string(data) + "z" + zero; }
};

// At stage 0 nothing is offloaded.
std::vector<Place> places() {
  const std::vector<std::string> tiers = {"", "cpu", "nvme"};
  std::vector<Place> all;
  for (int zero = 0; zero < 4; ++zero)
    for (int p = 0; p < 3; ++p) {
      const std::string tier = zero == 0 ? "" : tiers[static_cast<size_t>((p + zero) % 3)];
      all.push_back({1 << p, 1 + (p + zero + zero / 2) % 2, std::to_string(zero) + tier});
    }
  return all;
}

// Tied and clipped: what several stages and ranks add up in another order.
RANK_BODY(trains_at_a_place) {
  const std::string folder = variable("FOLDER"), name = variable("NAME");
  gannet::Dict config = pipe_config(variable("ZERO"), 0.5);
  config["optimizer"] = gannet::Dict{{"type", "AdamW"}, {"params", gannet::Dict{{"lr", 1e-3}, {"weight_decay", 0.1}}}};
  PipeRun run(config, {.net = {.blocks = 4, .dropout = 0, .is_tied = true, .seed = variable("LOAD").empty() ? 1u : 7u}});
  int64_t first = 0;
  if (!variable("LOAD").empty()) {
    run.engine->load_checkpoint(folder + "/" + variable("LOAD"));
    first = run.engine->global_steps();
  }
  run.train(first, first == 0 ? kSteps : kMore);
  run.engine->save_fp32_model(folder, name + ".safetensors");
  if (first == 0) run.engine->save_checkpoint(folder + "/" + name);
}

class Covering : public testing::Test {
 protected:
  void train(const Place& place, const std::string& name, const std::string& load = "") {
    expect_all_succeed(run_ranks("trains_at_a_place", place.pipe * place.data,
                                 {.environment = {{"PIPE", std::to_string(place.pipe)},
                                                  {"FOLDER", folder.string()},
                                                  {"ZERO", place.zero},
                                                  {"NAME", name},
                                                  {"SCHEDULE", place.pipe == 2 ? "interleaved" : "1f1b"},
                                                  {"LOAD", load}},
                                  .limit = std::chrono::seconds(120)}));
  }
  // The norm of the difference over that of the values, of all parameters together.
  double apart(const std::string& name, const std::string& other) const {
    const auto here = gannet::load_safetensors(folder.string() + "/" + name + ".safetensors"),
               there = gannet::load_safetensors(folder.string() + "/" + other + ".safetensors");
    EXPECT_EQ(here.size(), there.size());
    double differences = 0, values = 0;
    for (const auto& [key, tensor] : there) {
      differences += std::pow((here.at(key).to(at::kDouble) - tensor.to(at::kDouble)).norm().item<double>(), 2);
      values += std::pow(tensor.to(at::kDouble).norm().item<double>(), 2);
    }
    return std::sqrt(differences / values);
  }
  const TemporaryFolder folder;
};

TEST_F(Covering, EveryPlaceTrainsAsOneRankAndContinuesAtTheNextTwo) {
  const Place one{1, 1, "0"};
  train(one, "whole");
  train(one, "longer", "whole");
  std::vector<Place> all = places();
  if (!ranks::is_full()) all = {all[4], all[6], all[10]};  // up to 4 processes, both tiers, two schedules
  double farthest = 0, farthest_after = 0;
  for (const Place& place : all) {
    train(place, place.name());
    farthest = std::max(farthest, apart(place.name(), "whole"));
    EXPECT_LT(apart(place.name(), "whole"), 1e-6) << place.name();
  }
  for (size_t i = 0; i < all.size(); ++i)
    for (const size_t ahead : {1, 2}) {
      const Place& next = all[(i + ahead) % all.size()];
      const std::string name = next.name() + "_after_" + all[i].name();
      train(next, name, all[i].name());
      farthest_after = std::max(farthest_after, apart(name, "longer"));
      EXPECT_LT(apart(name, "longer"), 1e-6) << name;
    }
  std::cout << "farthest: " << farthest << ", continued: " << farthest_after << std::endl;
}

}  // namespace
