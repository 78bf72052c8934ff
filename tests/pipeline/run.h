// A pipeline of the tests on this rank, of as many stages as the variable PIPE says. With
// GANNET_TEST_ACCELERATOR the tests run on a device: `cuda`, `checked`.
#pragma once

#include <iomanip>
#include <iostream>

#include "pipeline/net.h"
#include "zero/support.h"

namespace gannet::test {

inline uint32_t stages_wanted() { return variable("PIPE").empty() ? 1 : static_cast<uint32_t>(std::stoul(variable("PIPE"))); }

// Of a step. 4 stages need 8 for every schedule.
inline int64_t micro_batches_wanted() { return variable("MICRO_BATCHES").empty() ? 4 : std::stoll(variable("MICRO_BATCHES")); }

// `zero`: the stage of ZeRO, and with what is offloaded: "2", "2cpu", "3nvme".
inline Dict pipe_config(const std::string& zero = "0", double clipping = 0, const std::string& dtype = "fp32") {
  Dict config = config_with({{"gradient_accumulation_steps", micro_batches_wanted()}, {"gradient_clipping", clipping}});
  config["train_micro_batch_size_per_gpu"] = 1;
  config["optimizer"] = Dict{{"type", "AdamW"}, {"params", Dict{{"lr", 1e-2}, {"eps", 1e-6}}}};
  const int64_t stage = zero[0] - '0';
  Dict section{{"stage", stage}};
  if (stage == 3) section["stage3_param_persistence_threshold"] = 0;
  if (const std::string tier = zero.substr(1); !tier.empty()) {
    Dict target{{"device", tier}};
    if (tier == "nvme") target["nvme_path"] = variable("FOLDER");
    section["offload_optimizer"] = target;
    if (stage == 3) section["offload_param"] = target;
  }
  config["zero_optimization"] = section;
  if (dtype != "fp32") config[dtype] = Dict{{"enabled", true}};
  if (const std::string type = variable("GANNET_TEST_ACCELERATOR"); !type.empty()) config["accelerator"] = Dict{{"type", type}};
  if (!variable("SCHEDULE").empty()) config["gannet"] = Dict{{"pipeline", Dict{{"schedule", variable("SCHEDULE")}}}};
  return config;
}

struct PipeRun {
  struct How {
    PipeNetImpl::How net = {};
    int64_t recomputed_layers = 0;
  };
  PipeRun(const Dict& config, const How& how) : net(std::make_shared<PipeNetImpl>(how.net)) {
    torch::set_num_threads(1);
    engine = initialize(pipe::Module(net, {.num_stages = stages_wanted(),
                                           .loss_fn = next_word_loss,
                                           .partition_method = "uniform",
                                           .seed_layers = true,
                                           .activation_checkpoint_interval = how.recomputed_layers}),
                        {.config = config})
                 .engine;
  }
  pipe::Source source(int64_t first = 0) {
    return [this, number = first]() mutable { return std::optional(words_of(number++, engine->rank(), engine->world_size())); };
  }
  // Steps [first, first + count), with a line of figures for each, from the first rank.
  void train(int64_t first, int64_t count) {
    const pipe::Source data = source(micro_batches_wanted() * first);
    for (int64_t step = 0; step < count; ++step) {
      const double loss = engine->train_batch(data);
      ranks::expect(engine->was_step_applied(), "the step is applied");
      const auto norm = engine->get_global_grad_norm();
      if (init_distributed()->rank() == 0)
        std::cout << "figure: " << std::setprecision(17) << loss << " " << norm.value() << std::endl;
    }
  }

  std::shared_ptr<PipeNetImpl> net;
  std::shared_ptr<PipelineEngine> engine;
};

inline std::vector<double> figures_in(const std::vector<ranks::Outcome>& outcomes) {
  std::vector<double> all;
  for (const auto& outcome : outcomes) {
    std::istringstream output(outcome.output);
    for (std::string line; std::getline(output, line);)
      if (line.rfind("figure: ", 0) == 0) {
        std::istringstream numbers(line.substr(8));
        for (double number; numbers >> number;) all.push_back(number);
      }
  }
  return all;
}

}  // namespace gannet::test
