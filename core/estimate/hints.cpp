#include "estimate/hints.h"

#include <algorithm>
#include <optional>

#include "base/format.h"
#include "base/table.h"
#include "base/text.h"

namespace gannet {

std::string building_text(const zero::Plan& plan, const zero::FreeSpace& room) {
  const uint32_t here = std::min(plan.ranks, plan.ranks_per_host);
  Table table({"the model is built", "a rank", formatted("a host ({})", here), "on this machine"});
  const auto add = [&](const char* how, uint64_t bytes, const std::string& condition) {
    std::vector<std::string> lacking;
    const auto check = [&](const char* what, uint64_t needed, std::optional<uint64_t> free) {
      if (free && needed > *free) lacking.push_back(formatted("{} of {}", size_text(needed - *free), what));
    };
    check("host memory", bytes * here, room.host);
    check("host memory that one process may take", bytes, room.process);
    const std::string verdict = !condition.empty() ? condition
                                : !lacking.empty() ? formatted("lacks {}", join(lacking, ", "))
                                : room.host        ? "fits"
                                                   : "unknown";
    table.add({how, size_text(bytes), size_text(bytes * here), verdict});
  };
  add("whole on each rank", zero::built_whole_bytes(plan.model), "");
  add("under zero::Init, stage 3", zero::built_sharded_bytes(plan.model, plan.ranks),
      plan.device_is_host ? "" : "only with accelerator cpu");
  return formatted("Host memory before an engine has the model, in fp32 as LibTorch makes it:\n\n{}", table.to_string());
}

std::string speed_text(const zero::Plan& plan, const zero::FreeSpace& room) {
  std::string text =
      "Speed, as a rule, the fastest first: stage 0, 1, 2, 2 with offload_optimizer to cpu, 3, 3 with offload to cpu; then what "
      "is offloaded to nvme.";
  if (!plan.device_is_host && !room.device) return formatted("{}\n", text);
  for (const zero::Placement& placement : zero::fastest_first()) {
    zero::Plan one = plan;
    one.placement = placement;
    if (zero::fits(one, room)) return formatted("{} The first of them that fits: {}.\n", text, to_string(placement));
  }
  return formatted("{} None of them fits.\n", text);
}

std::string shapes_text(const std::vector<std::pair<std::string, int64_t>>& sizes) {
  constexpr int64_t kTile = 16;
  constexpr size_t kMost = 4;
  std::vector<std::string> odd;
  size_t more = 0;
  for (const auto& [name, size] : sizes) {
    if (size <= kTile || size % kTile == 0) continue;  // small sizes are intended: classes, colours
    if (odd.size() < kMost)
      odd.push_back(formatted("{} of {} (next: {})", size, name, (size + kTile - 1) / kTile * kTile));
    else
      ++more;
  }
  if (odd.empty()) return "";
  return formatted("Matrix products are faster, in 16 bits on a GPU above all, where sizes are multiples of {}: {}{} {} not.\n",
                   kTile, join(odd, ", "), more > 0 ? formatted(" and {} more", more) : "",
                   odd.size() + more == 1 ? "is" : "are");
}

}  // namespace gannet
