#include "estimate/fit.h"

#include <gannet/error.h>

#include <algorithm>
#include <tuple>

#include "base/format.h"
#include "base/text.h"

namespace gannet::zero {
namespace {

constexpr uint32_t kMostRanks = 1 << 20;

// Returns this placement and those that move data farther from the device, cheapest first.
std::vector<Placement> placements_from(const Placement& now) {
  std::vector<Placement> all = legal_placements();
  std::erase_if(all, [&](const Placement& one) {
    return one.stage < now.stage || one.offload_optimizer < now.offload_optimizer || one.offload_param < now.offload_param;
  });
  const auto cost = [](const Placement& one) {
    const int optimizer = static_cast<int>(one.offload_optimizer), param = static_cast<int>(one.offload_param);
    return std::tuple(std::max(optimizer, param), optimizer + param, param, one.stage);
  };
  std::sort(all.begin(), all.end(), [&](const Placement& a, const Placement& b) { return cost(a) < cost(b); });
  return all;
}

bool uses_nvme(const Placement& placement) {
  return placement.offload_optimizer == Tier::kNvme || placement.offload_param == Tier::kNvme;
}

// Returns the smallest number of ranks, on whole hosts, on which this placement fits. A rank's
// bytes only fall as ranks are added.
std::optional<uint32_t> ranks_that_fit(Plan plan, const FreeSpace& room) {
  const uint32_t per_host = plan.ranks_per_host;
  const auto fit_on = [&](uint32_t hosts) {
    plan.ranks = hosts * per_host;
    return fits(plan, room);
  };
  uint32_t no = plan.ranks / per_host, yes = kMostRanks / per_host;
  if (yes <= no || !fit_on(yes)) return std::nullopt;
  while (yes - no > 1) {
    const uint32_t middle = no + (yes - no) / 2;
    (fit_on(middle) ? yes : no) = middle;
  }
  return yes * per_host;
}

// Describes the memory that bounds the plan: "11.2 GiB of 16.0 GiB of device memory".
std::string use_of(const Plan& plan, const FreeSpace& room) {
  const RankBytes bytes = estimate(plan);
  if (!plan.device_is_host && room.device)
    return formatted("{} of {} of device memory", size_text(bytes.device), size_text(*room.device));
  const uint64_t needed = bytes.host * std::min(plan.ranks, plan.ranks_per_host);
  return room.host ? formatted("{} of {} of host memory", size_text(needed), size_text(*room.host))
                   : formatted("{} a rank", size_text(bytes.host));
}

std::string keys_of(const Plan& now, const Placement& to) {
  const Placement& from = now.placement;
  std::vector<std::string> keys;
  const std::string section = "zero_optimization.";
  if (to.stage != from.stage) keys.push_back(formatted("{}stage to {}", section, to.stage));
  const auto device = [&](const char* block, Tier before, Tier after) {
    if (before != after)
      keys.push_back(formatted("{}{}.device to \"{}\"{}", section, block, to_string(after),
                               after == Tier::kNvme ? " and its nvme_path to a folder on a fast disk" : ""));
  };
  device("offload_optimizer", from.offload_optimizer, to.offload_optimizer);
  device("offload_param", from.offload_param, to.offload_param);
  if (to.offload_param == Tier::kNvme && (from.offload_param != Tier::kNvme || now.buffers.max_in_cpu > 0))
    keys.push_back(formatted("{}offload_param.max_in_cpu to 0", section));
  return keys.empty() ? "" : formatted("set {}", join(keys, ", "));
}

// Returns the cheapest rung of the activation ladder with which the same placement fits.
std::optional<ActivationChange> activation_change(const Plan& plan, const FreeSpace& room) {
  Plan changed = plan;
  for (const ActivationChange& change : plan.activation_changes) {
    changed.activations = change.activations;
    if (change.activations.bytes < plan.activations.bytes && fits(changed, room)) return change;
  }
  return std::nullopt;
}

std::string advice(const Plan& plan, const FreeSpace& room, bool memory_lacks, bool disk_lacks) {
  std::string text;
  if (const auto change = memory_lacks ? activation_change(plan, room) : std::nullopt) {
    Plan changed = plan;
    changed.activations = change->activations;
    text = formatted("with fewer activations kept it fits: {}; set {}", use_of(changed, room), change->keys);
  } else if (memory_lacks) {
    const auto change = smallest_change(plan, room);
    if (!change) {
      text = formatted("no stage and no offload{} makes it fit, on any number of ranks", room.nvme ? "" : " to host memory");
      if (!room.nvme) text += "; a folder named by nvme_path could take optimizer states and parameters";
    } else {
      const std::string keys = keys_of(plan, change->placement);
      if (change->ranks == plan.ranks) {
        text = formatted("{} fits: {}", to_string(change->placement), use_of(*change, room));
      } else {
        const uint32_t hosts = change->ranks / change->ranks_per_host;
        text = formatted("nothing fits on {}{}; {} fits on {} ranks ({}): {}", plan.ranks, plan.ranks == 1 ? " rank" : " ranks",
                         to_string(change->placement), change->ranks,
                         hosts == 1 ? "of one host" : formatted("{} hosts like this one", hosts), use_of(*change, room));
      }
      if (!keys.empty()) text += formatted("; {}", keys);
    }
  }
  if (disk_lacks) text += formatted("{}for checkpoints, free disk space or name another folder", text.empty() ? "" : "; ");
  return text;
}

}  // namespace

bool fits(const Plan& plan, const FreeSpace& given) {
  FreeSpace room = given;
  room.checkpoint.reset();
  return (!uses_nvme(plan.placement) || room.nvme) && lacks(plan, room).empty();
}

std::vector<Placement> fastest_first() {
  std::vector<Placement> all = legal_placements();
  const auto cost = [](const Placement& one) {
    const int optimizer = static_cast<int>(one.offload_optimizer), param = static_cast<int>(one.offload_param);
    return std::tuple(uses_nvme(one), one.stage == 3, std::max(optimizer, param), optimizer + param, one.stage, param);
  };
  std::sort(all.begin(), all.end(), [&](const Placement& a, const Placement& b) { return cost(a) < cost(b); });
  return all;
}

FreeSpace room_of(const MachineMemory& memory) {
  FreeSpace room;
  room.host = memory.host_free_bytes();
  room.process = memory.process_free_bytes();
  return room;
}

std::string MemoryLack::to_string() const {
  return formatted("{} of {} are needed, {} are free: {} lack", size_text(needed), kind, size_text(free),
                   size_text(needed - free));
}

std::vector<MemoryLack> lacks(const Plan& plan, const FreeSpace& room) {
  const RankBytes bytes = estimate(plan);
  const uint32_t here = std::min(plan.ranks, plan.ranks_per_host);
  const std::string together = here == 1 ? "" : formatted(" by the {} ranks of a host", here);
  std::vector<MemoryLack> found;
  const auto check = [&](const std::string& kind, uint64_t needed, std::optional<uint64_t> free) {
    if (free && needed > *free) found.push_back({kind, needed, *free});
  };
  if (!plan.device_is_host) check("device memory", bytes.device, room.device);
  check(formatted("host memory{}", together), bytes.host * here, room.host);
  check("host memory that one process may take", bytes.host, room.process);
  check(formatted("NVMe space{}", together), bytes.nvme * here, room.nvme);
  check("disk space for a checkpoint", checkpoint_bytes(plan.model), room.checkpoint);
  return found;
}

std::optional<Plan> smallest_change(const Plan& plan, const FreeSpace& given) {
  FreeSpace room = given;
  if (!room.nvme && uses_nvme(plan.placement)) room.nvme = UINT64_MAX;  // its folder is already configured
  const auto placements = placements_from(plan.placement);
  Plan change = plan;
  change.buffers.max_in_cpu = 0;
  for (const Placement& placement : placements) {
    change.placement = placement;
    if (fits(change, room)) return change;
  }
  std::optional<Plan> best;
  for (const Placement& placement : placements) {
    change.ranks = plan.ranks;
    change.placement = placement;
    const auto ranks = ranks_that_fit(change, room);
    if (!ranks || (best && *ranks >= best->ranks)) continue;
    change.ranks = *ranks;
    best = change;
  }
  return best;
}

void fit(const Plan& plan, const FreeSpace& room) {
  const auto found = lacks(plan, room);
  if (found.empty()) return;
  std::vector<std::string> sentences;
  for (const MemoryLack& lack : found) sentences.push_back(lack.to_string());
  const bool disk_lacks = found.back().kind == "disk space for a checkpoint";
  const bool memory_lacks = found.size() > (disk_lacks ? 1 : 0);
  throw Error(ErrorCode::kOutOfMemory,
              formatted("the model does not fit: at {} on {}{}{}{}", to_string(plan.placement), plan.ranks,
                        plan.ranks == 1 ? " rank " : " ranks ", join(sentences, "; "),
                        plan.activations.bytes == 0 ? " (activations are not counted)" : ""),
              advice(plan, room, memory_lacks, disk_lacks));
}

}  // namespace gannet::zero
