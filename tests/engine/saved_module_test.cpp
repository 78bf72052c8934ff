// torch::save of an engine's module, and torch::load back into it. The parameters are views of flat buffers, which the file then
// has whole: each parameter is given the buffer's storage, in the file's dtype.
#include <gtest/gtest.h>

#include <sstream>

#include "engine/models.h"

namespace {

using namespace gannet::test;
using gannet::Dict;

struct LayersImpl : torch::nn::Module {
  LayersImpl(int64_t count, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < count; ++i)
      weights.push_back(register_parameter("w" + std::to_string(i), torch::randn({rows, columns})));
  }
  at::Tensor forward() {
    at::Tensor sum = torch::zeros({});
    for (const at::Tensor& weight : weights) sum = sum + weight.to(torch::kFloat).square().mean();
    return sum;
  }
  std::vector<at::Tensor> weights;
};

Dict config_of(const std::string& dtype) {
  Dict config = config_with({});
  if (dtype == "bf16" || dtype == "fp16") config[dtype] = Dict{{"enabled", true}};
  return config;
}

template <class Engine>
void step(Engine& engine) {
  engine.backward(engine.forward());
  engine.step();
}

std::string file_of(LayersImpl& module) {
  std::ostringstream out;
  torch::serialize::OutputArchive archive;
  module.save(archive);
  archive.save_to(out);
  return out.str();
}

void load(const std::shared_ptr<LayersImpl>& module, const std::string& file) {
  std::istringstream in(file);
  torch::load(module, in);
}

std::vector<at::Tensor> copies_of(const LayersImpl& module) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& weight : module.weights) copies.push_back(weight.detach().clone());
  return copies;
}

std::shared_ptr<LayersImpl> layers(int64_t count, int64_t rows, int64_t columns, const std::string& dtype) {
  torch::manual_seed(1);
  auto module = std::make_shared<LayersImpl>(count, rows, columns);
  if (dtype == "fp64") module->to(torch::kDouble);
  return module;
}

TEST(SavedModule, LoadsBackIntoItsEngine) {
  for (const std::string dtype : {"fp32", "bf16", "fp16", "fp64"})
    for (const int64_t count : {1, 2, 3})
      for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{8, 8}, {4, 4}, {5, 5}, {2, 4}, {1, 1}, {7, 9}}) {
        SCOPED_TRACE(dtype + ", " + std::to_string(count) + " of " + std::to_string(rows) + " x " + std::to_string(columns));
        auto module = layers(count, rows, columns, dtype);
        auto engine = gannet::initialize(module, {.config = config_of(dtype)}).engine;
        step(*engine);
        const std::string file = file_of(*module);
        const auto expected = copies_of(*module);
        for (int round = 0; round < 2; ++round) {
          step(*engine);
          load(module, file);
          const at::Tensor loss = engine->forward();  // takes the values in
          for (int64_t i = 0; i < count; ++i) ASSERT_TRUE(module->weights[i].equal(expected[i])) << "parameter " << i;
          engine->backward(loss);
          engine->step();
        }
      }
}

TEST(SavedModule, LoadsIntoAnEngineOfAnotherDtype) {
  for (const int64_t count : {1, 2, 3}) {
    auto wide = layers(count, 8, 8, "fp32");
    auto from = gannet::initialize(wide, {.config = config_of("fp32")}).engine;
    step(*from);
    auto module = layers(count, 8, 8, "bf16");
    auto engine = gannet::initialize(module, {.config = config_of("bf16")}).engine;
    load(module, file_of(*wide));
    engine->forward();
    for (int64_t i = 0; i < count; ++i)
      EXPECT_TRUE(module->weights[i].equal(wide->weights[i].to(torch::kBFloat16))) << i << " of " << count;
  }
}

// Tensors of their own, as a module without an engine has them: 16 numbers of fp64 are as long as 32 of fp32.
TEST(SavedModule, ATensorOfItsOwnInAnotherDtypeIsConverted) {
  auto plain = layers(1, 4, 4, "fp64");
  auto module = layers(1, 4, 4, "fp32");
  auto engine = gannet::initialize(module, {.config = config_of("fp32")}).engine;
  load(module, file_of(*plain));
  engine->forward();
  EXPECT_TRUE(module->weights[0].equal(plain->weights[0].to(torch::kFloat)));
}

}  // namespace
