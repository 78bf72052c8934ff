// The log of how long stages wait, and of what they move between ranks.
#include <gannet/log.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "pipeline/driver.h"
#include "pipeline/simulate.h"

namespace gannet::pipeline {

void Driver::log_idle() const {
  const int64_t count = ranks_.settings().accumulation_steps;
  const Schedule& order = schedule_->of(count);
  const double share = simulate(order, even_times(order, {})).idle_share;
  log_info(formatted("with {} micro-batch{} a step, stages are idle for {:.0f}% of it where their layers take equally long{}",
                     count, count == 1 ? "" : "es", 100 * share,
                     count < 4 * first_chunk().count() ? "; more micro-batches (gradient_accumulation_steps) leave less" : ""));
}

// ZeRO stage 3 gathers the parameters of a stage for each pass of each micro-batch, since the memory
// is free in between. `trained`: elements of each pipeline stage.
void Driver::log_gathers(const std::vector<int64_t>& trained) const {
  const uint32_t data_ranks = ranks_.comm->size();
  const std::vector<at::Tensor> own = module_.parameters();
  if (ranks_.settings().zero.stage < 3 || data_ranks == 1 || own.empty()) return;
  const int64_t count = ranks_.settings().accumulation_steps;
  const std::vector<std::vector<Action>>& rows = schedule_->of(count).actions;
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

void Driver::log_hops() {
  ranks_.world_group->all_reduce(hop_bytes_.data(), hop_bytes_.size(), GANNET_MAX);
  if (!ranks_.is_first()) return;
  const std::vector<uint32_t>& stage_of = schedule_->stage_of();
  std::vector<std::string> hops;
  for (size_t part = 0; part + 1 < stage_of.size(); ++part)
    if (stage_of[part] != stage_of[part + 1])
      hops.push_back(formatted("{} from stage {} to {}", size_text(static_cast<uint64_t>(hop_bytes_[part])), stage_of[part],
                               stage_of[part + 1]));
  if (!hops.empty()) log_info(formatted("the activations of a micro-batch are {}", join(hops, ", ")));
}

}  // namespace gannet::pipeline
