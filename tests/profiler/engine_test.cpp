// The config's flops_profiler section, on two ranks: every ZeRO stage counts alike, and training is the same to the bit.
#include <gannet/gannet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "comm/ranks.h"
#include "params/observer.h"
#include "profiler/net.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::expect;
using ranks::run_ranks;
using ranks::same;

Dict config(int64_t stage, const std::string& file, bool bf16) {
  Dict zero{{"stage", stage}, {"stage3_param_persistence_threshold", 0}};
  Dict config{{"train_micro_batch_size_per_gpu", N},
              {"gradient_accumulation_steps", 2},
              {"accelerator", Dict{{"type", "cpu"}}},
              {"comm", Dict{{"type", "gloo"}}},
              {"optimizer", Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-2}}}}},
              {"zero_optimization", zero},
              {"bf16", Dict{{"enabled", bf16}}}};
  if (!file.empty()) config["flops_profiler"] = Dict{{"enabled", true}, {"profile_step", 1}, {"output_file", file}};
  return config;
}

struct Trained {
  std::string text;
  std::vector<at::Tensor> parameters;
};

Trained train(int64_t stage, const std::string& file, bool bf16 = false) {
  at::manual_seed(5);
  auto engine = gannet::initialize(std::make_shared<Net>(), {.config = config(stage, file, bf16)}).engine;
  for (int64_t micro_step = 0; micro_step < 6; ++micro_step) {
    const auto loss = engine->forward(at::randn({N, C})).to(at::kFloat).square().mean();
    const bool is_profiled = !file.empty() && engine->rank() == 0 && micro_step == 2;
    same(gannet::zero::observer_here() != nullptr, is_profiled, "observed in micro-step " + std::to_string(micro_step));
    engine->backward(loss);
    same(gannet::zero::observer_here() != nullptr, false, "observed after backward");
    engine->step();
  }
  Trained trained;
  for (const auto& [name, value] : engine->fp32_parameters()) trained.parameters.push_back(value.clone());
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  trained.text = text.str();
  return trained;
}

// The counts: the text between the heads of the operators and of the memory.
std::string counts(const std::string& text) {
  const size_t begin = text.find(" Operators "), end = text.find(" Memory ");
  expect(begin != std::string::npos && end != std::string::npos, "the report has tables: " + text);
  return text.substr(begin, end - begin);
}

// "960 MACs" of the line "fwd MACs per GPU:     960 MACs".
std::string value(const std::string& text, const std::string& label) {
  const size_t at = text.find("\n" + label + ":");
  expect(at != std::string::npos, label + " is in " + text);
  const size_t begin = text.find_first_not_of(' ', at + label.size() + 2);
  return text.substr(begin, text.find('\n', begin) - begin);
}

void has(const std::string& text, const std::string& part) {
  expect(text.find(part) != std::string::npos, "'" + part + "' is in " + text);
}

RANK_BODY(stages_count_alike) {
  auto world = gannet::init_distributed();
  const std::string file = std::string(GANNET_BINARY_DIR) + "/profile_" + std::to_string(::getppid()) + "/report.txt";
  const Trained plain = train(3, "");
  std::vector<Trained> stages;
  for (const int64_t stage : {0, 1, 2, 3}) stages.push_back(train(stage, file));
  const Trained narrow = train(3, file, /*bf16=*/true);
  for (size_t p = 0; p < plain.parameters.size(); ++p)
    expect(at::equal(plain.parameters[p], stages[3].parameters[p]), "a profiled run is the same to the bit");
  if (world->rank() != 0) return;
  std::filesystem::remove_all(std::filesystem::path(file).parent_path());
  for (const Trained& stage : stages) same(counts(stage.text), counts(stages[0].text), "the counts of a stage");
  const std::string& text = stages[3].text;
  has(text, "Profile of step 1, its first micro-batch");
  has(text, "(up) Fc: 80 = ");
  value(text, "samples/second");
  // 6 rows through 4x4, 4x16, 16x4 and 4x4; backward twice, except for the first layer's input.
  same(value(text, "fwd MACs per GPU"), std::string("960 MACs"), "forward");
  same(value(text, "bwd MACs per GPU, counted"), std::string("1.82 KMACs"), "backward");
  for (const std::string& one : {text, narrow.text})
    expect(one.find("Not counted") == std::string::npos, "every operator has a rule: " + one);
  same(value(narrow.text, "fwd MACs per GPU"), std::string("960 MACs"), "forward in bf16");
  same(value(text, "world size"), std::string("2"), "world size");
  same(value(stages[0].text, "params per GPU"), std::string("188"), "parameters at stage 0");
  expect(value(text, "params per GPU") != "188", "at stage 3 a rank keeps a part of the parameters");
}
TEST(FlopsProfiler, EveryStageCountsAlikeAndTrainingIsTheSameToTheBit) {
  ranks::expect_all_succeed(run_ranks("stages_count_alike", 2));
}

}  // namespace
