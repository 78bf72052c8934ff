// Adds parameters that were frozen or did not exist when the engine was made, and trains them from
// now on. Each gets its own range after the existing ranges, which keep their memory, states and
// gradients.
#include <ATen/core/grad_mode.h>
#include <gannet/log.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "control/world.h"
#include "engine/agreement.h"
#include "engine/construction.h"
#include "engine/impl.h"
#include "engine/optimizer_reduction.h"
#include "engine/ties.h"
#include "params/broadcast.h"
#include "params/interception.h"
#include "update/group_states.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace gannet {
namespace {

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 5;
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), kMost)));
  return join(first, ", ") + (names.size() > kMost ? formatted(" and {} others", names.size() - kMost) : "");
}

// Returns all names of the parameter: several if it is tied.
std::vector<std::string> names_of(const torch::nn::Module& module, const at::Tensor& parameter) {
  std::vector<std::string> names;
  for (const auto& entry : module.named_parameters())
    if (entry.value().is_same(parameter)) names.push_back(entry.key());
  return names;
}

// The gradients of parameters that took part in a forward before they joined: this rank's
// gradients, and which parameters have one on any rank.
struct FirstGradients {
  std::unordered_map<const void*, at::Tensor> mine;  // by the parameter's TensorImpl
  std::unordered_set<const void*> of_any;
  std::unordered_set<const void*> cleared;  // parameters whose `.grad` the program reset after the last backward
};

// Returns 0 for a tensor that is already sharded or split, since ranks then have different parts of
// the same values.
uint64_t value_hash(const at::Tensor& tensor) {
  if (zero::is_watched(tensor.storage().unsafeGetStorageImpl()) || split_of(tensor)) return 0;
  const at::Tensor bytes = tensor.detach().to(at::kCPU).contiguous();
  return XXH3_64bits(bytes.const_data_ptr(), bytes.nbytes());
}

// Collects the gradients that parameters got before they joined. Every rank is about to get rank 0's
// values, so a gradient computed with different values would be useless and causes
// Error(kMismatch).
FirstGradients first_gradients(EngineBase::Impl& impl, const ParameterStore::NamedParameters& joining) {
  FirstGradients found;
  std::string text;
  for (const auto& [name, tensor] : joining) {
    const auto [gradient, is_cleared] = impl.newcomers.take(tensor);
    if (is_cleared) found.cleared.insert(tensor.unsafeGetTensorImpl());
    if (gradient.defined()) {
      found.mine.emplace(tensor.unsafeGetTensorImpl(), gradient);
      found.of_any.insert(tensor.unsafeGetTensorImpl());
    }
    text += formatted("{} {}\n", gradient.defined() ? 1 : 0, value_hash(tensor));
  }
  if (impl.comm->size() == 1) return found;
  const auto texts = impl.host_group->gather_texts(text);
  std::vector<std::vector<std::string>> lines;
  for (const auto& one : texts) lines.push_back(split(one, '\n'));
  for (size_t p = 0; p < joining.size(); ++p) {
    const void* const identity = joining[p].second.unsafeGetTensorImpl();
    for (const auto& of_rank : lines)
      if (of_rank[p].starts_with("1")) found.of_any.insert(identity);
    for (size_t rank = 1; found.of_any.contains(identity) && rank < lines.size(); ++rank)
      if (lines[rank][p].substr(2) != lines[0][p].substr(2))
        throw Error(ErrorCode::kMismatch,
                    formatted("parameter '{}', which was registered within forward, has other values on rank {} than on rank 0: "
                              "its first gradients are of different layers",
                              joining[p].first, rank),
                    "seed the ranks alike (torch::manual_seed) before the layer is made, or make it before forward");
  }
  return found;
}

void bring(EngineBase::Impl& impl, size_t r, const FirstGradients& first) {
  const Range& range = impl.store.ranges()[r];
  std::vector<at::Tensor> gradients;
  bool any = false;
  for (const auto& parameter : range.parameters) {
    const auto mine = first.mine.find(parameter.tensor.unsafeGetTensorImpl());
    gradients.push_back(mine == first.mine.end() ? at::Tensor() : mine->second);
    any = any || first.of_any.contains(parameter.tensor.unsafeGetTensorImpl());
  }
  if (any) impl.reducer->bring(r, gradients);
  for (size_t p = 0; p < range.parameters.size(); ++p)
    if (first.cleared.contains(range.parameters[p].tensor.unsafeGetTensorImpl())) impl.reducer->leave_out(range, p);
}

}  // namespace

void join_parameters(EngineBase::Impl& impl, const std::vector<std::pair<std::string, at::Tensor>>& added) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : added) names.push_back(name);
  auto call =
      impl.process_group->world()->enter(*impl.world_group, "the joining of new parameters", impl.progress.global_steps + 1,
                                         some_of(names));  // every rank must unfreeze or add the same parameters
  impl.splits = agree_on_splits(impl, *impl.module);
  const at::NoGradGuard no_grad;
  const zero::Interception armed;  // a frozen parameter may be sharded, and is gathered when it is read
  const size_t first = impl.store.ranges().size();
  std::vector<std::string> joined;
  const auto group_of = [&](const at::Tensor& tensor) {
    const auto given = impl.module_audit->group_of(tensor);
    return given ? *given : impl.group_rules.are_by_name() ? impl.group_rules.group_of(names_of(*impl.module, tensor)) : 0;
  };
  ParameterStore::NamedParameters joining;
  for (const auto& [name, tensor] : added)
    if (tensor.requires_grad() && !impl.module_audit->is_declined(tensor)) {
      refuse_joining(impl, group_of(tensor), name);
      joining.emplace_back(name, tensor);
    }
  const FirstGradients first_of = first_gradients(impl, joining);
  for (const auto& [name, tensor] : added) {
    if (!tensor.requires_grad() || impl.module_audit->is_declined(tensor)) {  // a new layer's frozen parameter is only placed
      impl.store.place_untrained(tensor);
      broadcast(impl.ranks_of(split_of(tensor).get()), tensor.detach());
      continue;
    }
    TrainedParameter parameter = ParameterStore::admit(name, tensor);
    parameter.lag = impl.progress.applied_steps;
    const bool given = impl.module_audit->group_of(tensor).has_value();
    const size_t group = group_of(tensor);
    impl.store.add(group, parameter);
    if (!given || !impl.user_optimizer) impl.groups[group].parameters.push_back(tensor);
    impl.store.mark_moved(tensor);
    joined.push_back(name);
  }
  for (size_t g = 0; g < impl.groups.size(); ++g) {
    if (!impl.groups[g].optimizer) continue;
    describe_group(impl.groups, g, impl, impl.store);
    grow_group_states(impl.groups[g]);
  }
  impl.store.place(gradient_memory(impl));
  if (impl.ties) impl.ties->adopt(impl.store);
  for (size_t r = first; r < impl.store.ranges().size(); ++r) {
    Range& range = impl.store.ranges()[r];
    if (const auto& optimizer = impl.groups[range.group].optimizer) impl.store.add_states(range, *optimizer);
    if (impl.updater.average().is_on()) impl.store.add_average(range);
    impl.reducer->add_range(r);
  }
  for (size_t g = 0; g < impl.groups.size(); ++g) grow_squares(impl.groups[g], g, impl, impl.store);
  if (impl.user_optimizer) impl.user_optimizer->adopt(impl.store.ranges(), impl.groups);
  for (size_t r = first; r < impl.store.ranges().size(); ++r) bring(impl, r, first_of);
  impl.ownership->claim(impl.store.owned());
  if (!joined.empty()) {
    if (impl.is_first())
      log_info(formatted("these parameters require a gradient now and are trained from step {}: {}",
                         impl.progress.global_steps + 1, some_of(joined)));
  }
}

}  // namespace gannet
