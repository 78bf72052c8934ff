// Parameters that were frozen or did not exist when the engine was made, and train from now on: each joins a range of its own,
// behind the others, whose memory, states and gradients stay as they are.
#include <ATen/core/grad_mode.h>
#include <gannet/log.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "control/world.h"
#include "engine/impl.h"
#include "params/interception.h"

namespace gannet {
namespace {

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 5;
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), kMost)));
  return join(first, ", ") + (names.size() > kMost ? formatted(" and {} others", names.size() - kMost) : "");
}

}  // namespace

void EngineBase::Impl::join_parameters(const std::vector<std::pair<std::string, at::Tensor>>& added) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : added) names.push_back(name);
  auto call = process_group->world()->enter(*world_group, "the joining of new parameters", progress.global_steps + 1,
                                            some_of(names));  // every rank thaws or adds the same
  const at::NoGradGuard no_grad;
  const zero::Interception armed;  // a frozen parameter may be shared out: it is gathered as it is read
  const size_t first = ranges.size();
  int64_t off_the_drive = 0;
  std::vector<std::string> joined;
  for (const auto& [name, tensor] : added) {
    if (!tensor.requires_grad() ||
        declined.contains(tensor.unsafeGetTensorImpl())) {  // a new layer's, frozen: placed and no more
      place_untrained(tensor);
      broadcast(tensor.detach());
      continue;
    }
    TrainedParameter parameter = admit(name, tensor);
    parameter.lag = progress.applied_steps;
    const auto given = given_group.find(tensor.unsafeGetTensorImpl());
    const size_t group = given == given_group.end() ? 0 : given->second;
    Range& range = range_for(group, parameter, first, off_the_drive);
    range.parameters.push_back(parameter);
    if (given == given_group.end() || !user_optimizer) groups[group].parameters.push_back(tensor);
    for (auto& frozen_range : frozen)
      for (auto& one : frozen_range.parameters)
        if (one.tensor.is_same(tensor)) one.is_moved = true;
    joined.push_back(name);
  }
  if (gathers_on_demand() && !residency) make_residency();
  for (size_t r = first; r < ranges.size(); ++r) {
    place_range(ranges[r]);
    if (groups[ranges[r].group].optimizer) create_states(ranges[r]);
    reducer->add_range(r);
  }
  if (user_optimizer) adopt_user_optimizer();
  ownership->claim(owned());
  if (!joined.empty()) {
    if (is_first())
      log_info(formatted("these parameters require a gradient now and are trained from step {}: {}", progress.global_steps + 1,
                         some_of(joined)));
  }
}

}  // namespace gannet
