#include "pipeline/traffic.h"

#include <gannet/log.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "pipeline/simulate.h"

namespace gannet::pipeline {

void log_idle(const Schedule& order, int64_t count) {
  const double share = simulate(order, even_times(order, {})).idle_share;
  log_info(formatted(
      "with {} micro-batch{} a step, stages are idle for {:.0f}% of it where their layers take equally long{}", count,
      count == 1 ? "" : "es", 100 * share,
      count < 4 * static_cast<int64_t>(order.ranks()) ? "; more micro-batches (gradient_accumulation_steps) leave less" : ""));
}

// The parameters of a stage are gathered for each pass of each micro-batch, since they are released
// in between.
void log_gathers(const Schedule& order, int64_t count, const RankContext& ranks, const torch::nn::Module& module,
                 const std::vector<int64_t>& trained) {
  const uint32_t data_ranks = ranks.comm->size();
  const std::vector<at::Tensor> own = module.parameters();
  if (ranks.settings().zero.stage < 3 || data_ranks == 1 || own.empty()) return;
  const std::vector<std::vector<Action>>& rows = order.actions;
  const bool splits = std::any_of(rows.begin(), rows.end(), [](const std::vector<Action>& row) {
    return std::any_of(row.begin(), row.end(), [](const Action& action) { return action.kind == Action::kInput; });
  });
  const auto passes = static_cast<uint64_t>(splits ? 3 : 2);
  const auto once = static_cast<uint64_t>(*std::max_element(trained.begin(), trained.end())) * own.front().element_size() *
                    (data_ranks - 1) / data_ranks;
  log_info(
      formatted("ZeRO stage 3 in a pipeline: a rank of the largest stage receives up to {} of parameters in a step, for {} "
                "passes of {} micro-batches; at ZeRO stage 2 it would be {}",
                size_text(once * passes * static_cast<uint64_t>(count)), passes, count, size_text(once)));
}

void log_hops(std::vector<double> bytes, const RankContext& ranks, const std::vector<uint32_t>& stage_of) {
  ranks.world_group->all_reduce(bytes.data(), bytes.size(), GANNET_MAX);
  if (!ranks.is_first()) return;
  std::vector<std::string> hops;
  for (size_t part = 0; part + 1 < stage_of.size(); ++part)
    if (stage_of[part] != stage_of[part + 1])
      hops.push_back(
          formatted("{} from stage {} to {}", size_text(static_cast<uint64_t>(bytes[part])), stage_of[part], stage_of[part + 1]));
  if (!hops.empty()) log_info(formatted("the activations of a micro-batch are {}", join(hops, ", ")));
}

}  // namespace gannet::pipeline
