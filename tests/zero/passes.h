// Shared by the tests of steps with several passes.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plugin/support.h"
#include "zero/support.h"
#include "zero/uneven.h"

namespace gannet::test {

struct Place {
  int64_t stage;
  std::string states;  // their placement: "none", "cpu", "nvme"
};
inline const std::vector<Place> kPlaces = {{0, "none"}, {1, "none"}, {1, "cpu"}, {2, "none"},
                                           {2, "nvme"}, {3, "none"}, {3, "cpu"}, {3, "nvme"}};
inline std::string text_of(const Place& place) { return "stage " + std::to_string(place.stage) + " on " + place.states; }

inline Dict passes_config(const std::string& optimizer, const Dict& params, const Place& place, const Dict& more = {}) {
  Dict zero{
      {"stage", place.stage}, {"reduce_bucket_size", 400}, {"sub_group_size", 4096}, {"stage3_param_persistence_threshold", 40}};
  if (place.states != "none") {
    Dict tier{{"device", place.states}};
    if (place.states == "nvme") tier["nvme_path"] = variable("FOLDER");
    zero["offload_optimizer"] = tier;
  }
  Dict config = config_with({{"zero_optimization", zero}, {"gradient_clipping", 0.0}});
  config["optimizer"] = Dict{{"type", optimizer}, {"params", params}};
  for (const auto& [key, value] : more.entries()) config[key] = value;
  return config;
}

inline auto engine_of(const Dict& config) { return initialize(make_uneven(), {.config = config}).engine; }

// Other samples in each micro-batch and on each rank.
inline std::pair<at::Tensor, at::Tensor> batch_of(int64_t step, int64_t micro, uint32_t rank) {
  return make_batch((step * 7 + micro) * 11 + rank, 4);
}

// [all elements] fp64, averaged and unscaled; every rank calls it, between backward() and the end of the pass.
inline at::Tensor gradients_of(EngineBase& engine) {
  std::vector<at::Tensor> parts;
  for (const auto& name : engine.parameter_names()) parts.push_back(engine.full_gradient(name).to(torch::kDouble).flatten());
  return torch::cat(parts);
}

// The values that operators read, in the order of the masters.
template <class Model>
at::Tensor used_by(Engine<Model>& engine) {
  std::vector<at::Tensor> parts;
  const zero::GatheredParameters gathered(engine, engine.module()->parameters(), {});
  for (const auto& entry : engine.module()->named_parameters())
    parts.push_back(entry.value().detach().to(torch::kFloat).flatten());
  return torch::cat(parts);
}

inline Dict two_pass_config(const Place& place, const Dict& more = {}, const Dict& params = {}) {
  Dict given{{"lr", 0.05}, {"momentum", 0.9}, {"weight_decay", 0.01}, {"rho", 0.1}};
  for (const auto& [key, value] : params.entries()) given[key] = value;
  return passes_config("SAM", given, place, more);
}
inline Dict second_config(const Place& place, const Dict& more = {}) {
  return passes_config("Sophia", {{"lr", 0.01}, {"bs", 200}, {"hessian_interval", 2}}, place, more);
}
inline Dict dtype_of(const std::string& dtype) {
  if (dtype == "fp32") return {};
  if (dtype == "bf16") return {{"bf16", Dict{{"enabled", true}}}};
  return {{"fp16", Dict{{"enabled", true}, {"initial_scale_power", 8}, {"hysteresis", 1}}}};
}

template <class Engine>
void backward(Engine& engine, int64_t step, int64_t micro = 0, double factor = 1) {
  auto [x, y] = batch_of(step, micro, engine.rank());
  engine.backward(engine.forward(x, y) * factor);
}
template <class Engine>
void sam_step(Engine& engine, int64_t step) {
  backward(engine, step);
  engine.perturb();
  backward(engine, step);
  engine.step();
}

// The model's values are its masters, rounded.
template <class Engine>
void expect_published(Engine& engine, const std::string& where) {
  std::map<std::string, at::Tensor> masters;
  for (const auto& [name, master] : engine.fp32_parameters()) masters[name] = master.clone();
  const zero::GatheredParameters gathered(engine, engine.module()->parameters(), {});
  for (const auto& entry : engine.module()->named_parameters())
    if (masters.contains(entry.key()))
      ranks::expect(entry.value().detach().equal(masters[entry.key()].to(entry.value().scalar_type())),
                    where + ": the model has the master of " + entry.key() + ", rounded");
}

struct JoiningImpl : UnevenImpl {
  JoiningImpl() { first->weight.requires_grad_(false); }
};

class PassesTest : public testing::Test {
 protected:
  void run(const std::string& body, int ranks) {
    ranks::expect_all_succeed(ranks::run_ranks(body, ranks, {.environment = {{"FOLDER", folder_.string()}}}));
  }
  const TemporaryFolder folder_;
};

}  // namespace gannet::test
