// Shared by the tests of ZeroOneAdam.
#pragma once

#include <string>
#include <vector>

#include "control/world.h"
#include "zero/onebit_support.h"

namespace gannet::test {

// The variance has updates at 1 to 3, 4, 6, 8 and 12; updates are averaged at 13 to 17, 18, 20, 22, and at multiples of 4 from 24
// on.
inline constexpr int64_t kVarFreezeStep = 12, kVarUpdateScaler = 3, kLocalStepScaler = 5, kLocalStepClipper = 4;

inline Dict zero_one_config(bool bf16 = false, const Dict& params = {}, double clipping = 0.05) {
  Dict config = config_of(bf16, {}, clipping);
  Dict all{{"lr", 1e-3},
           {"weight_decay", 0.1},
           {"var_freeze_step", kVarFreezeStep},
           {"var_update_scaler", kVarUpdateScaler},
           {"local_step_scaler", kLocalStepScaler},
           {"local_step_clipper", kLocalStepClipper}};
  for (const auto& [key, value] : params.entries()) all[key] = value;
  config["optimizer"] = Dict{{"type", "ZeroOneAdam"}, {"params", all}};
  return config;
}

// The values of every rank, [ranks][numel].
inline at::Tensor of_ranks(EngineBase& engine, const at::Tensor& mine) {
  const auto ranks = static_cast<int64_t>(engine.world_size());
  at::Tensor all = torch::empty({ranks, mine.numel()}, mine.options());
  const at::Tensor own = mine.contiguous();
  engine.process_group()->links().host.all_gather(own.const_data_ptr(), all.mutable_data_ptr(), own.nbytes());
  return all;
}
inline bool is_same_on_all(EngineBase& engine, const at::Tensor& mine) {
  const at::Tensor all = of_ranks(engine, mine);
  for (int64_t r = 1; r < all.size(0); ++r)
    if (!torch::equal(all[r], all[0])) return false;
  return true;
}

}  // namespace gannet::test
