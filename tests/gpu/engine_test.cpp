#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <thread>

#include "engine/impl.h"
#include "engine/models.h"
#include "gpu/gpu_test.h"

namespace gannet::test {
namespace {

using testing::HasSubstr;

using EngineOnGpu = GpuTest;

Dict config_on(const std::string& accelerator, std::initializer_list<Dict::Entry> members = {}) {
  Dict config = config_with(members);
  config["accelerator"] = Dict{{"type", accelerator}};
  return config;
}

struct Trained {
  std::vector<double> losses, norms;
  at::Tensor parameters;
};
Trained train(const Dict& config, int steps = 20) {
  auto net = make_net();
  auto [engine, optimizer, loader, scheduler] = initialize(net, {.config = config});
  const int64_t accumulation = engine->gradient_accumulation_steps();
  Trained trained;
  for (int64_t i = 0; i < steps * accumulation; ++i) {
    const auto [x, y] = make_batch(i, 4);
    auto loss = engine->forward(x.to(engine->device()), y.to(engine->device()));
    trained.losses.push_back(loss.template item<double>());
    engine->backward(loss);
    engine->step();
    if (auto norm = engine->get_global_grad_norm()) trained.norms.push_back(*norm);
  }
  trained.parameters = flat_parameters(*net).cpu();
  return trained;
}

double distance(const at::Tensor& a, const at::Tensor& b) { return ((a - b).norm() / b.norm()).item<double>(); }

TEST_F(EngineOnGpu, TrainsAsOnTheCpu) {
  for (const char* type : {"AdamW", "SGD", "Lamb", "Adafactor", "AdamW8bit", "Muon"}) {
    // Gradients differ in their last bits. A code of 8 bits may become its neighbour then, 1.6% away; Newton-Schulz multiplies a
    // difference by up to 485.
    const bool is_touchy = type == std::string("AdamW8bit") || type == std::string("Muon");
    const double near = is_touchy ? 1e-2 : 1e-4;
    const Dict optimizer{{"type", type}, {"params", Dict{{"lr", 1e-2}, {"weight_decay", 0.1}}}};
    const auto members = {Dict::Entry{"optimizer", optimizer}, Dict::Entry{"gradient_clipping", 0.5},
                          Dict::Entry{"gradient_accumulation_steps", 2}};
    const Trained gpu = train(config_on("cuda", members)), cpu = train(config_on("cpu", members));
    ASSERT_EQ(gpu.losses.size(), cpu.losses.size());
    for (size_t i = 0; i < cpu.losses.size(); ++i)
      EXPECT_NEAR(gpu.losses[i], cpu.losses[i], near * std::abs(cpu.losses[i])) << type << ", micro-batch " << i;
    ASSERT_EQ(gpu.norms.size(), cpu.norms.size());
    for (size_t i = 0; i < cpu.norms.size(); ++i)
      EXPECT_NEAR(gpu.norms[i], cpu.norms[i], near * cpu.norms[i]) << type << ", micro-batch " << i;
    EXPECT_LT(distance(gpu.parameters, cpu.parameters), near) << type;
  }
}

// The update is the CPU's then, and gradients are in its memory; parameters too, at stage 3 with offload_param.
TEST_F(EngineOnGpu, OffloadedItTrainsAsOnTheCpu) {
  const Dict to_cpu{{"device", "cpu"}};
  for (const Dict& zero : {Dict{{"stage", 2}, {"offload_optimizer", to_cpu}},
                           Dict{{"stage", 3}, {"offload_optimizer", to_cpu}, {"offload_param", to_cpu}}}) {
    const auto run = [&](const char* accelerator) {
      auto engine = initialize(make_net(), {.config = config_on(accelerator, {{"zero_optimization", zero},
                                                                              {"gradient_clipping", 0.5},
                                                                              {"gradient_accumulation_steps", 3}})})
                        .engine;
      for (int64_t i = 0; i < 30; ++i) {
        const auto [x, y] = make_batch(i, 4);
        engine->backward(engine->forward(x.to(engine->device()), y.to(engine->device())));
        engine->step();
      }
      for (const auto& range : engine->impl().store.ranges())
        if (range.grad.defined()) EXPECT_TRUE(range.grad.is_cpu()) << accelerator;
      std::vector<at::Tensor> parts;
      for (const auto& [name, master] : engine->fp32_parameters()) parts.push_back(master.flatten().cpu());
      return torch::cat(parts);
    };
    EXPECT_LT(distance(run("cuda"), run("cpu")), 1e-4) << "stage " << zero.find("stage")->as_int();
  }
}

TEST_F(EngineOnGpu, TrainsIn16Bits) {
  for (const char* precision : {"bf16", "fp16"}) {
    const Trained half = train(config_on("cuda", {{precision, Dict{{"enabled", true}}}}), 60),
                  full = train(config_on("cuda"), 60);
    EXPECT_LT(half.losses.back(), half.losses.front()) << precision;
    EXPECT_LT(distance(half.parameters, full.parameters), precision == std::string("bf16") ? 0.05 : 0.5)
        << precision;  // fp16 skips its first steps
  }
}

TEST_F(EngineOnGpu, AutoTakesTheGpu) {
  auto net = make_net();
  auto [engine, optimizer, loader, scheduler] = initialize(net, {.config = config_on("auto")});
  EXPECT_EQ(engine->device(), at::Device(at::kCUDA, 0));
  EXPECT_THAT(engine->plugin_table(),
              testing::AllOf(HasSubstr("gannet_accelerator_cuda.so"), HasSubstr("gannet_optimizer_adam_cuda.so")));
  EXPECT_TRUE(net->first->weight.is_cuda());
}

TEST_F(EngineOnGpu, WorksOnTheProgramsOwnStreamAndThread) {
  for (const char* type : {"AdamW", "Lamb", "Adafactor", "AdamW8bit", "Muon"}) {
    const Dict config =
        config_on("cuda", {{"optimizer", Dict{{"type", type}, {"params", Dict{{"lr", 1e-2}, {"weight_decay", 0.1}}}}}});
    const Trained expected = train(config);
    Trained found;
    std::thread([&] {
      const c10::impl::VirtualGuardImpl impl(c10::DeviceType::CUDA);
      impl.exchangeStream(impl.getStreamFromGlobalPool(c10::Device(c10::DeviceType::CUDA, 0)));
      found = train(config);
    }).join();
    EXPECT_EQ(found.losses, expected.losses) << type;
    EXPECT_EQ(found.norms, expected.norms) << type;
    EXPECT_TRUE(at::equal(found.parameters, expected.parameters)) << type;
  }
}

TEST_F(EngineOnGpu, SkipsAStepWithANonFiniteGradientAndNamesIt) {
  auto net = make_net();
  auto [engine, optimizer, loader, scheduler] =
      initialize(net, {.config = config_on("cuda", {{"fp16", Dict{{"enabled", true}}}})});
  const at::Tensor before = flat_parameters(*net);
  auto [x, y] = make_batch(0, 4);
  auto loss = engine->forward(x.to(engine->device()), y.to(engine->device())) * std::numeric_limits<float>::infinity();
  engine->backward(loss);
  const StepResult result = engine->step();
  EXPECT_FALSE(result.applied);
  EXPECT_THAT(result.reason, HasSubstr("the gradient of 'first.weight'"));
  EXPECT_TRUE(at::equal(flat_parameters(*net), before));
}

}  // namespace
}  // namespace gannet::test
