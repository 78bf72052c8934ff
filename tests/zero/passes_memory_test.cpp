// Memory of a step's passes: the masters that perturb() keeps and a second gradient, as the
// estimate says, and no further copy.
#include <gannet/estimate.h>
#include <gannet/gannet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

#include "engine/impl.h"
#include "estimate/plan.h"
#include "tensor/flat_buffer.h"
#include "zero/passes.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using gannet::Value;
using ranks::expect;
using ranks::run_ranks;

constexpr int64_t kWidth = 1024;

struct SquareImpl : torch::nn::Module {
  SquareImpl() {
    for (const char* name : {"a", "b"})
      layers.push_back(register_module(name, torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false))));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = x.to(layers[0]->weight.scalar_type());
    for (auto& layer : layers) h = layer(h);
    return h.to(torch::kFloat).square().mean();
  }
  std::vector<torch::nn::Linear> layers;
};

// Bytes of this process's open unlinked files in the folder.
int64_t bytes_on_drive() {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error).string();
    struct stat found = {};
    if (target.starts_with(variable("FOLDER")) && ::stat(entry.path().c_str(), &found) == 0) bytes += found.st_size;
  }
  return bytes;
}

// Resident pages at most since the last call.
int64_t peak_resident() {
  std::ifstream status("/proc/self/status");
  int64_t kib = 0;
  for (std::string word; status >> word;)
    if (word == "VmHWM:") status >> kib;
  std::ofstream("/proc/self/clear_refs") << "5";
  return kib * 1024;
}

// Beside what a rank keeps of gathered parameters for the next ones.
int64_t flat_bytes(gannet::EngineBase& engine) {
  const auto* const residency = engine.impl().store.residency();
  return gannet::flat_bytes_alive() - (residency ? residency->spare_bytes() : 0);
}

gannet::zero::Tier tier_of(const Place& place) {
  return place.states == "cpu"    ? gannet::zero::Tier::kCpu
         : place.states == "nvme" ? gannet::zero::Tier::kNvme
                                  : gannet::zero::Tier::kNone;
}

// The estimate for passes, in memory and on the drive.
std::pair<int64_t, int64_t> estimated(const Place& place, const std::string& dtype, bool is_sam, uint32_t ranks) {
  gannet::zero::Plan plan{.model = {.parameters = 2 * kWidth * kWidth,
                                    .largest = kWidth * kWidth,
                                    .param_bytes = dtype == "fp32" ? 4u : 2u,
                                    .master_bytes = dtype == "fp32" ? 0u : 4u},
                          .ranks = ranks,
                          .ranks_per_host = ranks,
                          .device_is_host = true,
                          .placement = {static_cast<int>(place.stage), tier_of(place)}};
  const auto without = estimate(plan);
  (is_sam ? plan.model.keeps_masters : plan.model.has_second_gradient) = true;
  const auto with = estimate(plan);
  return {static_cast<int64_t>(with.host - without.host), static_cast<int64_t>(with.nvme - without.nvme)};
}

RANK_BODY(passes_memory) {
  auto world = gannet::test::world();
  const at::Tensor x = torch::ones({2, kWidth});
  for (const std::string dtype : {"fp32", "bf16"})
    for (const bool is_sam : {true, false})
      for (const Place& place : kPlaces) {
        if (place.states == "cpu") continue;  // a tier of its own, as long as its masters
        const Dict more = dtype_of(dtype);
        auto engine = gannet::initialize(std::make_shared<SquareImpl>(),
                                         {.config = is_sam ? two_pass_config(place, more) : second_config(place, more)})
                          .engine;
        const auto pass = [&] {
          engine->backward(engine->forward(x));
          is_sam ? engine->perturb() : engine->keep_second_gradient();
        };
        engine->backward(engine->forward(x));
        engine->zero_grad();
        const int64_t flat = flat_bytes(*engine), drive = bytes_on_drive();
        engine->process_group()->barrier();
        pass();
        engine->process_group()->barrier();
        const auto [memory, nvme] = estimated(place, dtype, is_sam, world->size());
        const std::string where = dtype + (is_sam ? " SAM" : " Sophia") + " at " + text_of(place);
        if (place.states == "none") ranks::same(flat_bytes(*engine) - flat, memory, where);
        if (place.states == "nvme") ranks::same(bytes_on_drive() - drive, nvme, where);
        engine->process_group()->barrier();
        engine->abandon_step();
        if (is_sam && place.states == "none") {
          engine->swap_optimizer("SGD", Dict{{"lr", 0.1}});
          expect(flat_bytes(*engine) <= flat, where + ": another optimizer keeps no masters");
        }
      }
}

RANK_BODY(passes_copy_once) {
  auto world = gannet::test::world();
  const at::Tensor x = torch::ones({2, kWidth});
  const int64_t masters = 2 * kWidth * kWidth * 4;
  auto engine = gannet::initialize(std::make_shared<SquareImpl>(), {.config = two_pass_config({0, "none"}, {})}).engine;
  for (int step = 0; step < 2; ++step) {
    engine->backward(engine->forward(x));
    const int64_t before = (peak_resident(), peak_resident());
    engine->perturb();
    const int64_t grown = peak_resident() - before;
    expect(grown < (step == 0 ? masters + masters / 2 : masters / 2),
           "step " + std::to_string(step) + " takes " + std::to_string(grown) + " bytes beside " + std::to_string(masters));
    engine->backward(engine->forward(x));
    engine->step();
  }
}

RANK_BODY(passes_estimate_text) {
  const auto text = [](const std::string& type) {
    return gannet::estimate(SquareImpl(), passes_config(type, {{"lr", 0.1}}, {0, "none"}), {.ranks = 1});
  };
  contains(text("SAM"), "with 4 bytes of optimizer states for each, and 4 more between the passes of a step (its kept master)");
  contains(text("Sophia"),
           "with 8 bytes of optimizer states for each, and 4 more between the passes of a step (its second gradient)");
  expect(text("SGD").find("between the passes") == std::string::npos, "SGD has one pass");
}

class PassesMemory : public PassesTest {};

TEST_F(PassesMemory, IsWhatTheEstimateSays) { run("passes_memory", 1); }
TEST_F(PassesMemory, IsWhatTheEstimateSaysOnTwoRanks) { run("passes_memory", 2); }
TEST_F(PassesMemory, PerturbTakesNoCopyBesideTheKeptMasters) { run("passes_copy_once", 1); }
TEST_F(PassesMemory, TheEstimateNamesIt) { run("passes_estimate_text", 1); }

}  // namespace
