#include "estimate/plan.h"

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "params/layout.h"

namespace gannet::zero {
namespace {

uint64_t share(uint64_t number, uint64_t ranks) { return (number + ranks - 1) / ranks; }

// Returns the number of elements in a gradient bucket. A tensor is never split: one larger than a
// bucket gets its own bucket.
uint64_t bucket_numel(const Plan& plan) {
  const uint64_t usual = std::min<uint64_t>(plan.buffers.reduce_bucket_size, kOverlapNumel);
  return std::min(plan.model.parameters, std::max(usual, plan.model.largest));
}

// Returns the number of elements gathered at a time at stage 3: the parameters in use, the next
// ones, and those prefetched. Nothing is prefetched above stage3_max_live_parameters.
uint64_t gathered_numel(const Plan& plan) {
  const uint64_t wanted = 2 * plan.model.largest + plan.buffers.prefetch_bucket_size;
  return std::min({plan.model.parameters, wanted, std::max(plan.model.largest, plan.buffers.max_live_parameters)});
}

// Returns the number of elements in all pages between memory and NVMe. A page holds one sub-group,
// and there are no more pages than the shard fills.
uint64_t paged_numel(const Plan& plan, uint64_t own) {
  const uint64_t page = std::min({own, std::max<uint64_t>(1, plan.buffers.sub_group_size), uint64_t{kOverlapNumel}});
  return page == 0 ? 0 : std::min(plan.buffers.buffer_count, share(own, page)) * page;
}

}  // namespace

Tier tier_of(const config::OffloadTarget& to) { return to.device == "nvme" ? Tier::kNvme : to ? Tier::kCpu : Tier::kNone; }

const char* to_string(Tier tier) { return tier == Tier::kNone ? "none" : tier == Tier::kCpu ? "cpu" : "nvme"; }

bool Placement::is_legal() const {
  return stage >= 0 && stage <= 3 && (offload_optimizer == Tier::kNone || stage >= 1) &&
         (offload_param == Tier::kNone || stage == 3);
}

std::vector<Placement> legal_placements() {
  std::vector<Placement> all;
  for (const int stage : {0, 1, 2, 3})
    for (const Tier optimizer : {Tier::kNone, Tier::kCpu, Tier::kNvme})
      for (const Tier param : {Tier::kNone, Tier::kCpu, Tier::kNvme})
        if (const Placement one{stage, optimizer, param}; one.is_legal()) all.push_back(one);
  return all;
}

std::string to_string(const Placement& placement) {
  std::string text = formatted("stage {}", placement.stage);
  const char* joint = " with ";
  if (placement.offload_optimizer != Tier::kNone) {
    text += formatted("{}offload_optimizer to {}", joint, to_string(placement.offload_optimizer));
    joint = " and ";
  }
  if (placement.offload_param != Tier::kNone)
    text += formatted("{}offload_param to {}", joint, to_string(placement.offload_param));
  return text;
}

uint64_t built_whole_bytes(const ModelSize& model) { return model.parameters * std::max(4u, model.param_bytes); }

uint64_t built_sharded_bytes(const ModelSize& model, uint32_t ranks) {
  const uint64_t elements = share(model.parameters, ranks) + (ranks > 1 ? model.largest : 0);
  return std::min(elements, model.parameters) * std::max(4u, model.param_bytes);
}

uint64_t checkpoint_bytes(const ModelSize& model) {
  return model.parameters * (std::max(model.master_bytes, model.param_bytes) + model.state_bytes + model.average_bytes);
}

RankBytes estimate(const Plan& plan) {
  const auto& [model, ranks, ranks_per_host, device_is_host, placement, buffers, activations, gradients_stay, changes] = plan;
  GANNET_CHECK(ranks >= 1 && ranks_per_host >= 1 && placement.is_legal());
  RankBytes bytes;
  const auto on_device = [&](uint64_t size) { (device_is_host ? bytes.host : bytes.device) += size; };
  const auto on_host = [&](uint64_t size) {
    bytes.host += size;
    if (!device_is_host && buffers.pin_memory) bytes.pinned += size;
  };
  const auto put = [&](uint64_t size, Tier tier) {
    if (tier == Tier::kNone) on_device(size);
    if (tier == Tier::kCpu) on_host(size);
    if (tier == Tier::kNvme) bytes.nvme += size;
  };
  const uint64_t all = model.parameters, own = share(all, ranks);
  const Tier optimizer = placement.offload_optimizer;

  const uint64_t kept = placement.offload_param == Tier::kNvme ? std::min(own, buffers.max_in_cpu) : 0;
  put(((placement.stage >= 3 ? own : all) - kept) * model.param_bytes, placement.offload_param);
  on_host(kept * model.param_bytes);

  // An optimizer that does not run on the device cannot use the device's parameters as masters, so
  // it has a copy.
  const bool is_apart = optimizer != Tier::kNone && !device_is_host;
  const uint64_t master_bytes = model.master_bytes == 0 && is_apart ? model.param_bytes : model.master_bytes;
  const uint64_t master_type_bytes = std::max<uint64_t>(master_bytes, model.param_bytes);
  const uint64_t update_bytes =
      master_bytes + model.state_bytes + model.average_bytes + (model.has_second_gradient ? master_type_bytes : 0);
  const uint64_t kept_bytes = model.keeps_masters ? master_type_bytes : 0;  // written and read without pages
  put((placement.stage >= 1 ? own : all) * (update_bytes + kept_bytes), optimizer);
  if (optimizer == Tier::kNvme) on_host(paged_numel(plan, own) * update_bytes);

  // Sharded gradients go to the optimizer's memory, but never to NVMe: that transfer is worthwhile
  // only for masters and states.
  const bool shards_gradients = placement.stage >= 2;
  const bool leave_device = shards_gradients && is_apart;
  const uint64_t gradients = (shards_gradients ? own : all) * model.grad_bytes;
  const uint64_t kept_activations = activations.bytes + activations.gradient_bytes;
  if (leave_device || gradients_stay) {
    put(gradients, leave_device ? Tier::kCpu : Tier::kNone);
    on_device(kept_activations);
  } else {
    on_device(std::max(kept_activations, gradients + activations.last_bytes));
  }
  // A single rank has nothing to reduce, and gathers only what is stored elsewhere.
  if (shards_gradients && (ranks > 1 || is_apart)) on_device(2 * bucket_numel(plan) * model.grad_bytes);
  const bool stays = placement.offload_param == Tier::kNone || (device_is_host && kept == own);
  if (placement.stage >= 3 && (ranks > 1 || !stays)) on_device(gathered_numel(plan) * model.param_bytes);

  if (activations.tier != Tier::kNone) put(activations.tier_bytes, activations.tier);

  bytes.checkpoint = share(checkpoint_bytes(model), ranks);
  return bytes;
}

double bytes_per_parameter(Plan plan) {
  constexpr uint64_t kMany = 1 << 30;  // large enough that rounding up a share is negligible
  plan.model.parameters = kMany;
  plan.model.largest = 0;
  plan.buffers = {.reduce_bucket_size = 0,
                  .prefetch_bucket_size = 0,
                  .max_live_parameters = 0,
                  .sub_group_size = 0,
                  .buffer_count = 0,
                  .pin_memory = plan.buffers.pin_memory,
                  .max_in_cpu = 0};
  plan.activations = {};
  const RankBytes bytes = estimate(plan);
  return static_cast<double>(plan.device_is_host ? bytes.host : bytes.device) / kMany;
}

}  // namespace gannet::zero
