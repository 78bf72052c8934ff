// A checkpoint of any stage, tier and number of ranks goes on at any other: what is loaded is bitwise what was saved, and
// training goes on as it does where it was saved. Cases are chosen pairwise; eight run here, all of them with
// GANNET_TEST_FULL.
#include <gannet/gannet.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "checkpoint/fixture_model.h"
#include "convert/import_weights.h"
#include "zero/pairwise.h"
#include "zero/support.h"

namespace {

using namespace gannet::test;
using gannet::Dict;
using ranks::run_ranks;

constexpr int64_t kSamples = 4, kHalf = 3;  // of a step, on however many ranks; steps before and after the save
constexpr double kRate = 1e-3;
constexpr int kRanks[] = {1, 2, 4};
constexpr const char *kTiers[] = {"none", "cpu", "nvme"}, *kTypes[] = {"fp32", "bf16"};

// Stage, tier, ranks: where it is saved, where it is loaded; dtype.
using Case = std::array<int, 7>;
constexpr Case kValues = {4, 3, 3, 4, 3, 3, 2};
bool is_legal(const Case& one) {
  return (one[0] > 0 || one[1] == 0) && (one[3] > 0 || one[4] == 0);
}  // nothing is offloaded at stage 0

std::string place(int stage, int tier, int count) {
  return "stage " + std::to_string(stage) + ", " + kTiers[tier] + ", " + std::to_string(kRanks[count]) + " ranks";
}

auto engine_here() {
  const int64_t ranks = world()->size();
  Dict config = config_with({{"train_micro_batch_size_per_gpu", kSamples / ranks}, {"gradient_clipping", 0.5}});
  config["optimizer"] = Dict{{"type", "AdamW"}, {"params", Dict{{"lr", kRate}, {"eps", 1e-6}, {"weight_decay", 0.1}}}};
  const std::string stage = variable("STAGE"), tier = variable("TIER"), drive = variable("FOLDER");
  Dict zero{{"stage", std::atoi(stage.c_str())},
            {"sub_group_size", 8192},
            {"reduce_bucket_size", 3000},
            {"stage3_param_persistence_threshold", 100}};
  if (tier != "none") zero["offload_optimizer"] = Dict{{"device", tier}, {"nvme_path", drive}};
  if (tier != "none" && stage == "3") zero["offload_param"] = Dict{{"device", tier}, {"nvme_path", drive}, {"max_in_cpu", 0}};
  config["zero_optimization"] = zero;
  if (variable("DTYPE") != "fp32") config[variable("DTYPE")] = Dict{{"enabled", true}};
  return gannet::initialize(make_net(1, 1001), {.config = config}).engine;
}

template <class Engine>
void train_half(Engine& engine, int64_t first) {
  for (int64_t step = first; step < first + kHalf; ++step) {
    auto [x, y] = make_batch(step * engine.world_size() + engine.rank(), kSamples / engine.world_size());
    engine.backward(engine.forward(x, y));
    engine.step();
  }
}

RANK_BODY(saves_and_goes_on) {
  auto engine = engine_here();
  train_half(*engine, 0);
  engine->save_checkpoint(variable("FOLDER") + "/run", {.tag = "saved"});
  train_half(*engine, kHalf);
  engine->save_checkpoint(variable("FOLDER") + "/run", {.tag = "straight"});
}

RANK_BODY(loads_and_goes_on) {
  auto engine = engine_here();
  engine->load_checkpoint(variable("FOLDER") + "/run", {.tag = "saved"});
  engine->save_checkpoint(variable("FOLDER") + "/run", {.tag = "again"});
  train_half(*engine, kHalf);
  engine->save_checkpoint(variable("FOLDER") + "/run", {.tag = "gone on"});
}

at::Tensor parameters_in(const std::map<std::string, at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with("parameter/")) parts.push_back(tensor.flatten().to(torch::kDouble));
  return torch::cat(parts);
}

// An update is at most about the rate for each parameter, and the two runs' updates are apart by the rounding of their gradients'
// sums, as far as Adam lets it through: it divides by sqrt(v) + eps, so that of a gradient as small as eps the rounding noise
// counts fully. `noise` is the relative rounding of a sum of 4 in the type that is reduced, 16 times over for such gradients.
double bound(const std::string& dtype, const at::Tensor& parameters) {
  const double noise = 16 * 4 * (dtype == "fp32" ? 0x1p-24 : 0x1p-8);
  return noise * kRate * kHalf / parameters.pow(2).mean().sqrt().item<double>();
}

TEST(Anywhere, ACheckpointGoesOnAtAnyOtherStageTierAndNumberOfRanks) {
  std::vector<Case> cases = pairwise<7>(kValues, is_legal);
  std::cout << cases.size() << " cases\n";
  const bool all = ranks::is_full();
  if (!all) cases.resize(8);
  for (const Case& one : cases) {
    const std::filesystem::path folder = std::filesystem::current_path() / ("anywhere-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    const std::string dtype = kTypes[one[6]],
                      what = place(one[0], one[1], one[2]) + " -> " + place(one[3], one[4], one[5]) + ", " + dtype;
    SCOPED_TRACE(what);
    const auto run = [&](const char* body, int stage, int tier, int count) {
      ranks::expect_all_succeed(run_ranks(
          body, kRanks[count],
          {.environment = {{"STAGE", std::to_string(stage)}, {"TIER", kTiers[tier]}, {"DTYPE", dtype}, {"FOLDER", folder}}}));
    };
    run("saves_and_goes_on", one[0], one[1], one[2]);
    run("loads_and_goes_on", one[3], one[4], one[5]);
    if (HasFailure()) break;
    const auto saved = tensors_of(folder / "run", "saved"), again = tensors_of(folder / "run", "again");
    EXPECT_EQ(saved.size(), again.size());
    for (const auto& [name, tensor] : saved) EXPECT_TRUE(again.contains(name) && torch::equal(tensor, again.at(name))) << name;
    const at::Tensor straight = parameters_in(tensors_of(folder / "run", "straight")),
                     gone_on = parameters_in(tensors_of(folder / "run", "gone on"));
    const double apart = difference(gone_on, straight), limit = bound(dtype, straight);
    EXPECT_LT(apart, limit);
    EXPECT_GT(difference(straight, parameters_in(saved)), 2 * limit) << "training goes somewhere, compared with the bound";
    if (all) std::cout << what << ": " << apart << " of " << limit << std::endl;
    std::filesystem::remove_all(folder);
  }
}

auto engine_in(const std::string& precision, int64_t stage, int64_t seed) {
  Dict config = stage3(stage);
  if (precision != "fp32") config[precision] = Dict{{"enabled", true}};
  if (precision == "fp16") config[precision] = Dict{{"enabled", true}, {"initial_scale_power", 8}};
  return gannet::initialize(make_net(seed), {.config = config}).engine;
}

// Saved in one precision and stage, loaded in another: masters and states are the same bits, training continues.
RANK_BODY(every_pair_of_precisions) {
  auto world = gannet::test::world();
  const std::filesystem::path folder = variable("FOLDER");
  int64_t pairs = 0;
  for (const std::string saved : {"fp32", "bf16", "fp16"})
    for (const int64_t stage : {1, 3}) {
      const std::string from = folder / (saved + std::to_string(stage));
      {
        auto engine = engine_in(saved, stage, 1);
        train(*engine, 3);
        engine->save_checkpoint(from, {.tag = "saved"});
      }
      const auto expected = tensors_of(from, "saved");
      for (const std::string loaded : {"fp32", "bf16", "fp16"})
        for (const int64_t other : {1, 3}) {
          const std::string what =
              saved + " at stage " + std::to_string(stage) + " to " + loaded + " at " + std::to_string(other);
          auto engine = engine_in(loaded, other, 9);
          engine->load_checkpoint(from, {.tag = "saved", .lock_folder = false});
          ranks::same(engine->loss_scale(), loaded == "fp16" ? 256.0 : 1.0, what + ": the loss scale");
          const std::string again = from + "-again-" + loaded + std::to_string(other);
          engine->save_checkpoint(again, {.tag = "again"});
          const auto found = tensors_of(again, "again");
          ranks::same(found.size(), expected.size(), what + ": tensors");
          for (const auto& [name, tensor] : expected)
            ranks::expect(found.contains(name) && torch::equal(found.at(name), tensor), what + ": '" + name + "' is the same");
          train(*engine, 2, 3);
          ranks::expect(engine->was_step_applied(), what + ": a step");
          ranks::same(engine->global_steps(), int64_t{5}, what + ": steps");
          ++pairs;
        }
    }
  ranks::same(pairs, int64_t{36}, "pairs");
}

// A weight file in one dtype, imported and trained in another: masters are the file's numbers.
RANK_BODY(every_pair_through_an_import) {
  auto world = gannet::test::world();
  const std::filesystem::path folder = variable("FOLDER");
  for (const auto& [name, dtype] :
       {std::pair("fp32", at::kFloat), std::pair("bf16", at::kBFloat16), std::pair("fp16", at::kHalf)}) {
    const std::string file = folder / (std::string(name) + ".safetensors"), imported = folder / (std::string("from-") + name);
    auto net = make_net(5);
    net->to(dtype);
    if (world->rank() == 0) {
      gannet::save_weights(*net, file);
      gannet::convert::import_weights(file, imported, {});
    }
    world->barrier();
    for (const std::string trained : {"fp32", "bf16", "fp16"})
      for (const int64_t stage : {1, 3}) {
        const std::string what = std::string(name) + " imported, trained in " + trained + " at stage " + std::to_string(stage);
        auto engine = engine_in(trained, stage, 9);
        engine->load_checkpoint(imported, {.lock_folder = false});
        for (const auto& entry : net->named_parameters())
          ranks::expect(torch::equal(engine->full_fp32_parameter(entry.key()), entry.value().detach().to(at::kFloat)),
                        what + ": '" + entry.key() + "' is the file's");
        ranks::same(engine->loss_scale(), trained == "fp16" ? 256.0 : 1.0, what + ": the loss scale");
        train(*engine, 2);
        ranks::expect(engine->was_step_applied(), what + ": a step");
      }
  }
}

TEST(Anywhere, EveryPairOfPrecisionsThroughAResumeAndThroughAnImportOnTwoRanks) {
  for (const char* const body : {"every_pair_of_precisions", "every_pair_through_an_import"}) {
    const std::filesystem::path folder = std::filesystem::current_path() / ("precisions-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    ranks::expect_all_succeed(run_ranks(body, 2, {.environment = {{"FOLDER", folder}}}));
    std::filesystem::remove_all(folder);
  }
}

// Written by two ranks before the format changed; expected.safetensors has every tensor of each, whole.
RANK_BODY(loads_format1) {
  const std::string folder = variable("FOLDER"), tag = variable("TAG");
  const auto expected = gannet::load_safetensors(folder + "/" + tag + "/expected.safetensors");
  auto ranks = world();
  auto net = make_fixture_net(9 + ranks->rank());
  auto engine = gannet::initialize(net, {.config = fixture_config()}).engine;
  int64_t counter = 0;
  engine->add_state("counter", [] { return gannet::Value(0); }, [&](const gannet::Value& value) { counter = value.as_int(); });
  const gannet::LoadReceipt receipt = engine->load_checkpoint(folder, {.tag = tag, .lock_folder = false});
  const bool is_same = ranks->size() == 2;
  ranks::same(receipt.global_steps, int64_t{2}, "steps");
  ranks::same(receipt.parameters, int64_t{6}, "parameters");
  ranks::same(receipt.buffers, int64_t{3}, "buffers");
  ranks::same(receipt.states, int64_t{12}, "states");
  ranks::same(counter, ranks->rank() < 2 ? 10 + int64_t{ranks->rank()} : 10, "the program's state");
  for (const auto& [name, master] : engine->fp32_parameters())
    ranks::expect(at::equal(master, expected.at("parameter/" + name)), "parameter " + name);
  const std::string source = is_same ? std::to_string(ranks->rank()) : "0";
  for (const auto& buffer : net->named_buffers())
    ranks::expect(at::equal(buffer.value(), expected.at("buffer/" + source + "/" + buffer.key())), "buffer " + buffer.key());
  if (is_same)
    ranks::expect(at::equal(at::detail::getDefaultCPUGenerator().get_state(), expected.at("rng/" + source + "/cpu")),
                  "generator");
  if (tag == "boundary")
    ranks::expect(at::equal(receipt.client_state.tensors.at(0).second, expected.at("client/seen")), "client");
  // Everything that was loaded, in the format of now.
  const std::string again = variable("AGAIN");
  engine->save_checkpoint(again);
  for (const auto& [name, tensor] : tensors_of(again, "global_step2"))
    ranks::expect(at::equal(tensor, expected.at(name)), "saved again: " + name);
}

TEST(Anywhere, FormatOneCheckpointsResumeBitwise) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("gannet_format1_" + std::to_string(::getpid()));
  for (const char* tag : {"boundary", "between"})
    for (int count : {1, 2, 4}) {
      if (std::string(tag) == "between" && count != 2) continue;  // gradients belong to the ranks that have them
      SCOPED_TRACE(std::string(tag) + " on " + std::to_string(count));
      ranks::expect_all_succeed(run_ranks("loads_format1", count,
                                          {.environment = {{"FOLDER", GANNET_SOURCE_DIR "/tests/checkpoint/data/format1"},
                                                           {"TAG", tag},
                                                           {"AGAIN", (root / (tag + std::to_string(count))).string()}}}));
    }
  fs::remove_all(root);
}

}  // namespace
