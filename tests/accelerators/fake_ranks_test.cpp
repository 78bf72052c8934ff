// Several ranks on the fake device: "auto" gives them the Comm of the CPU, and they train to the bits of the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "comm/ranks.h"
#include "engine/models.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::run_ranks;

RANK_BODY(trains) {
  Dict config = config_with({{"gradient_clipping", 0.5}, {"zero_optimization", Dict{{"stage", 2}}}});
  config["accelerator"] = Dict{{"type", std::getenv("ACCELERATOR")}};
  auto net = make_net();
  auto engine = gannet::initialize(net, {.config = config}).engine;
  const auto rank = static_cast<int64_t>(std::atoll(std::getenv("RANK")));
  for (int64_t step = 0; step < 4; ++step) {
    auto [x, y] = make_batch(step * 2 + rank, 4);
    const at::Tensor loss = engine->forward(x, y);
    std::cout << "loss " << std::hexfloat << loss.item<float>() << "\n";
    engine->backward(loss);
    engine->step();
  }
  std::cout << "parameters " << std::hexfloat << flat_parameters(*net).norm().item<double>() << "\n";
}

// The lines that the body printed of its own.
std::vector<std::string> figures(const std::string& accelerator) {
  const auto outcomes = run_ranks("trains", 2, {.environment = {{"ACCELERATOR", accelerator}}});
  ranks::expect_all_succeed(outcomes);
  std::vector<std::string> lines;
  for (const auto& outcome : outcomes) {
    std::istringstream output(outcome.output);
    for (std::string line; std::getline(output, line);)
      if (line.rfind("loss ", 0) == 0 || line.rfind("parameters ", 0) == 0) lines.push_back(line);
  }
  return lines;
}

TEST(FakeRanks, TrainToTheBitsOfTheCpu) {
  const auto there = figures("fake");
  EXPECT_EQ(there.size(), 10u);
  EXPECT_EQ(there, figures("cpu"));
}

}  // namespace
