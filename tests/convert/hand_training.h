// A small DeepSpeed folder put together by hand, for what no fixture has.
#pragma once

#include <map>
#include <string>

#include "files/hand.h"

namespace gannet::files::hand {

// One parameter of four elements, stage 2, one rank. Cases change an entry, or take it away.
struct Training {
  std::map<std::string, Text> model = {
      {"module", dict({{"w", tensor()}})},
      {"buffer_names", list({})},
      {"param_shapes", list({dict({{"w", numbers({4})}})})},
      {"dp_world_size", num(1)},
      {"global_steps", num(4)},
      {"skipped_steps", num(0)},
      {"global_samples", num(16)},
      {"lr_scheduler", dict({{"last_batch_iteration", num(3)}})},
      {"ds_config", dict({{"fp16", dict({{"enabled", "\x88"}})}})},
  };
  std::map<std::string, Text> optimizer = {
      {"zero_stage", num(2)},
      {"partition_count", num(1)},
      {"loss_scaler",
       dict({{"cur_scale", real(1024)}, {"cur_iter", num(4)}, {"last_overflow_iter", num(-1)}, {"cur_hysteresis", num(2)}})},
      {"single_partition_of_fp32_groups", list({tensor()})},
  };
  std::map<std::string, Text> adam = {{"step", real(4)}, {"exp_avg", tensor()}, {"exp_avg_sq", tensor()}};
  std::map<std::string, Text> group = {{"lr", real(1e-3)},
                                       {"betas", tuple({real(0.9), real(0.999)})},
                                       {"eps", real(1e-8)},
                                       {"weight_decay", real(0.01)},
                                       {"params", list({num(0)})}};
  std::string groups;  // all of param_groups, where it is not that one

  static Text whole(const std::map<std::string, Text>& entries) { return dict({entries.begin(), entries.end()}); }

  void write(const std::string& dir) const {
    fs::create_directories(dir + "/step4");
    write_text(dir + "/latest", "step4");
    const std::string values = le(1.0f) + le(2.0f) + le(3.0f) + le(4.0f);
    write_text(dir + "/step4/mp_rank_00_model_states.pt", file(whole(model), {{"0", values}}));
    auto all = optimizer;
    if (!all.contains("base_optimizer_state"))
      all["base_optimizer_state"] = "}(" + str("state") + "}(" + num(0) + whole(adam) + "u" + str("param_groups") +
                                    (groups.empty() ? list({whole(group)}) : groups) + "u";
    write_text(dir + "/step4/zero_pp_rank_0_mp_rank_00_optim_states.pt",
               file(dict({{"optimizer_state_dict", whole(all)}}), {{"0", values}}));
  }
};

}  // namespace gannet::files::hand
