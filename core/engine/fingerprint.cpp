// Checks that replicated values are the same on all ranks. Every gannet.fingerprint_every steps and
// at each save, it exchanges a hash of each parameter and names the first parameter that differs.
// Possible causes: a bit flip in memory, a library that writes out of bounds, a program that gave
// one rank different values.
#include <ATen/core/grad_mode.h>
#include <gannet/error.h>
#include <torch/nn/module.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/format.h"
#include "control/rendezvous.h"
#include "control/world.h"
#include "engine/agreement.h"
#include "engine/ties.h"

namespace gannet {
namespace {

uint64_t hash_of(const at::Tensor& values) {
  const at::Tensor here = values.to(at::kCPU).contiguous();
  return XXH3_64bits(here.const_data_ptr(), here.nbytes());
}

// Exchanges one combined hash and, only if that differs, all hashes. Returns the name of the first
// value that differs and, in `ranks`, the ranks where it is not equal to the first rank's value.
std::string first_difference(HostGroup& group, const std::vector<uint64_t>& hashes, const std::vector<std::string>& names,
                             std::vector<uint32_t>& ranks) {
  if (hashes.empty() || group.size() == 1) return "";
  uint64_t all = XXH3_64bits(hashes.data(), hashes.size() * sizeof(uint64_t));
  std::vector<uint64_t> of_ranks(group.size());
  group.all_gather(&all, of_ranks.data(), sizeof(uint64_t));
  if (std::all_of(of_ranks.begin(), of_ranks.end(), [&](uint64_t other) { return other == of_ranks[0]; })) return "";

  std::vector<uint64_t> each(hashes.size() * group.size());
  group.all_gather(hashes.data(), each.data(), hashes.size() * sizeof(uint64_t));
  std::string first;
  for (size_t i = 0; i < hashes.size() && first.empty(); ++i)
    for (uint32_t rank = 1; rank < group.size(); ++rank)
      if (each[rank * hashes.size() + i] != each[i]) {
        first = names[i];
        ranks.push_back(rank);
      }
  return first;
}

struct ComparedHashes {
  std::vector<uint64_t> hashes;
  std::vector<std::string> names;
  void add(const std::string& name, uint64_t hash) {
    hashes.push_back(hash);
    names.push_back(name);
  }
};

// Hashes this rank's copy of a parameter that other stages hold as well, with the same shards.
ComparedHashes copy_of(const Tie& tie, const ParameterStore& store) {
  ComparedHashes copy;
  for (const Range& range : store.ranges()) {
    if (range.tie != tie.name) continue;
    const TrainedParameter& parameter = range.parameters[0];
    if (!parameter.resident) copy.add(parameter.name, hash_of(parameter.tensor.detach()));
    if (!range.masters().is_here()) continue;
    for (const zero::TensorPart& part : range.parts)
      copy.add(formatted("this rank's part of {}", parameter.name),
               hash_of(range.master_of({part.offset, part.own, part.numel})));
  }
  return copy;
}

// Adds the states that belong to a whole group (one value per tensor, per row or column, or for the
// group), which should be identical on every rank. Leaves out optimizers that average gradients
// themselves, which may be in the middle of local steps, and models with experts, since experts'
// groups are not on all ranks.
void add_states(const std::vector<Group>& groups, const ParameterStore& store, ComparedHashes& compared) {
  if (store.has_experts()) return;
  for (const Group& group : groups) {
    if (!group.optimizer || group.optimizer->owns_grad_reduction()) continue;
    const auto& states = group.optimizer->states();
    for (size_t s = 0; s < std::min(states.size(), group.group_states.size()); ++s)
      if (states[s].is_of_group() && !states[s].is_of_rank() && !states[s].is_local() && group.group_states[s].defined())
        compared.add(formatted("the state '{}' of optimizer plugin {} {}, group {}", states[s].name,
                               group.optimizer->plugin().name(), group.optimizer->plugin().version(), group.name),
                     hash_of(group.group_states[s]));
  }
}

// Returns the hashes of frozen parameters. If `written_only`, the hash is 0 for those that were not
// written since the last comparison.
ComparedHashes all_of(const std::vector<ModuleAudit::FrozenParameter>& frozen, bool written_only) {
  ComparedHashes compared;
  for (const auto& one : frozen)
    compared.add("the frozen parameter " + one.name, written_only && !one.is_written ? 0 : hash_of(one.tensor.detach()));
  return compared;
}

// This rank's hashes, grouped by the axis along which the other ranks should have equal ones.
struct HashesByAxis {
  ComparedHashes along_data, along_tensor, along_expert_data;

  void add(const std::string& name, const at::Tensor& values, const Range& range) {
    const uint64_t hash = hash_of(values);
    (range.is_of_experts() ? along_expert_data : along_data).add(name, hash);
    if (!range.is_split_along_tensor()) along_tensor.add(name, hash);  // otherwise each rank has its own boxes
  }
};

// Adds the parameters and masters that this rank holds in full.
void add_whole(const ParameterStore& store, const std::function<bool(const Range&)>& may_differ, HashesByAxis& all) {
  for (const auto& range : store.ranges())
    for (const auto& parameter : range.parameters) {
      if (may_differ(range)) break;
      if (parameter.resident) continue;  // each rank has its own part
      all.add(parameter.name, parameter.tensor.detach(), range);
      if (range.has_master_copy() && range.has_all_of(range.master))
        all.add(formatted("the master of {}", parameter.name), range.whole_master(parameter), range);
    }
}

// Adds the shards that ranks along the tensor axis should also have in common, because they are
// replicas there.
void add_shards(const ParameterStore& store, HashesByAxis& all) {
  for (const auto& range : store.ranges())
    for (const auto& part : range.parts)
      if (!range.is_split_along_tensor() && range.masters().is_here() && !range.has_all_of(range.masters()))
        all.add(formatted("this rank's part of {}", range.parameters[part.tensor].name),
                range.master_of({part.offset, part.own, part.numel}), range);
}

// Returns the same message on all ranks; otherwise groups without a difference would continue to
// train while the others stop. A difference between ranks with the same part of the model (`found`)
// takes precedence over `other`, because it is more specific.
std::string first_of_all(HostGroup& world, const std::string& found, const std::string& other) {
  std::string along_others;
  for (const std::string& text : world.gather_texts(formatted("{}\n{}", found, other))) {
    const size_t end = text.find('\n');
    if (end > 0) return text.substr(0, end);
    if (along_others.empty()) along_others = text.substr(end + 1);
  }
  return along_others;
}

}  // namespace

std::string differing_parameters(RankContext& context, const ParameterStore& store, const std::vector<Group>& groups,
                                 const std::vector<ModuleAudit::FrozenParameter>& frozen, const Ties* ties, const char* where,
                                 int64_t step, const std::function<bool(const Range&)>& may_differ) {
  if (context.world_group->size() == 1) return "";
  const at::NoGradGuard no_grad;
  Timers::Scope timed(context.timers, TimedPhase::kCheck);
  HashesByAxis all;
  add_whole(store, may_differ, all);
  add_states(groups, store, all.along_data);
  const auto compare = [&](HostGroup& group, const ComparedHashes& compared, const char* axis) {
    std::vector<uint32_t> ranks;
    const std::string first = first_difference(group, compared.hashes, compared.names, ranks);
    for (uint32_t& rank : ranks) rank = group.ranks()[rank];  // numbered among all ranks that train together
    return first.empty() ? ""
                         : formatted("the ranks have different values of '{}': {} and rank {}{} (found {}, step {})", first,
                                     control::name_ranks(ranks), group.ranks()[0], axis, where, step);
  };
  std::string found = compare(*context.host_group, all.along_data, "");
  // Few programs write frozen parameters. Those not written are hashed only after a difference.
  if (const std::string written = compare(*context.host_group, all_of(frozen, /*written_only=*/true), "");
      found.empty() && !written.empty())
    found = compare(*context.host_group, all_of(frozen, /*written_only=*/false), "");
  const bool has_experts = store.has_experts() && context.expert_group;
  if (has_experts) {
    const std::string of_experts = compare(*context.expert_data_group, all.along_expert_data, "");
    if (found.empty()) found = of_experts;
  }
  if (!context.mesh->model() && !has_experts) return found;
  std::string other;
  if (context.tensor_group) {
    add_shards(store, all);
    other = compare(*context.tensor_group, all.along_tensor, ", along the axis tensor");
  }
  for (const Tie& tie : ties ? ties->all() : std::deque<Tie>())
    if (tie.ranks) {
      const std::string of_copies = compare(tie.ranks->links().host, copy_of(tie, store), ", which are tied along the axis pipe");
      if (other.empty()) other = of_copies;
    }
  return first_of_all(*context.world_group, found, other);
}

}  // namespace gannet
