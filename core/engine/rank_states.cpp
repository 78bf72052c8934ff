#include "engine/rank_states.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "state/state_entry.h"

namespace gannet {
namespace {

using Body = std::function<void(const Optimizer::State& state, const std::string& parameter, const at::Tensor& values)>;

std::string name_of(const std::string& rank, const std::string& state, const std::string& parameter) {
  return formatted("rank_state/{}/{}/{}", rank, state, parameter);
}

// Of every range, [numel] of each parameter: where it lives.
void for_each(const EngineBase::Impl& impl, const Body& body) {
  for (const Range& range : impl.store.ranges()) {
    const auto& optimizer = impl.groups[range.group].optimizer;
    if (!optimizer) continue;
    for (size_t s = 0; s < optimizer->states().size(); ++s)
      if (const Optimizer::State& state = optimizer->states()[s]; state.is_of_rank())
        for (const TrainedParameter& parameter : range.parameters)
          body(state, parameter.name, range.states[s].get(parameter.offset, parameter.numel).view(parameter.shape));
  }
}

// One state of one parameter, and whether every saved rank has it.
struct Wanted {
  std::string state, parameter;
  at::Tensor values;  // where it lives
  double initial_value;
  bool is_there;
};

std::vector<Wanted> wanted_from(const EngineBase::Impl& impl, const checkpoint::Opened& found,
                                const std::vector<std::string>& saved_ranks) {
  std::vector<Wanted> all;
  for_each(impl, [&](const Optimizer::State& state, const std::string& parameter, const at::Tensor& values) {
    const bool is_there = std::all_of(saved_ranks.begin(), saved_ranks.end(), [&](const std::string& rank) {
      const checkpoint::TensorInfo* saved = found.find(name_of(rank, state.name, parameter));
      return saved && saved->numel() == values.numel();
    });
    all.push_back({state.name, parameter, values, state.initial_value, is_there});
  });
  return all;
}

// One rank's at a time in memory, in the order of the ranks.
void read_mean(const checkpoint::Opened& found, const std::vector<std::string>& saved_ranks, const std::vector<Wanted>& all) {
  for (size_t r = 0; r < saved_ranks.size(); ++r) {
    std::vector<std::pair<const Wanted*, at::Tensor>> read;
    std::vector<checkpoint::Target> targets;
    for (const Wanted& one : all) {
      if (!one.is_there || one.values.numel() == 0) continue;
      const checkpoint::TensorInfo& saved = *found.find(name_of(saved_ranks[r], one.state, one.parameter));
      read.emplace_back(&one, at::empty({saved.numel()}, saved.dtype));
      targets.push_back({saved.name, 0, read.back().second});
    }
    found.read(targets);
    for (const auto& [one, values] : read) {
      const at::Tensor shaped = values.view(one->values.sizes());
      r == 0 ? one->values.copy_(shaped) : one->values.add_(shaped);
    }
  }
  if (saved_ranks.size() < 2) return;
  for (const Wanted& one : all)
    if (one.is_there) one.values.div_(static_cast<double>(saved_ranks.size()));
}

}  // namespace

void add_rank_states(const EngineBase::Impl& impl, const std::string& rank, std::vector<checkpoint::Slice>& slices) {
  for_each(impl, [&](const Optimizer::State& state, const std::string& parameter, const at::Tensor& values) {
    slices.push_back({name_of(rank, state.name, parameter), values.sizes().vec(), 0, values.flatten()});
  });
}

std::string read_rank_states(const EngineBase::Impl& impl, const checkpoint::Opened& found, const checkpoint::Ranks& ranks) {
  const MeshShape& saved_mesh = found.mesh();
  const uint32_t source = source_rank(saved_mesh, ranks.mesh, ranks.rank);
  const bool is_same = saved_mesh.size(kDataAxis) == ranks.mesh.size(kDataAxis);
  std::vector<std::string> saved_ranks;
  for (const uint32_t rank : saved_mesh.group(kDataAxis, source))
    if (!is_same || rank == source) saved_ranks.push_back(rank_name(saved_mesh, rank));
  std::set<std::string> averaged, missing;
  const std::vector<Wanted> all = wanted_from(impl, found, saved_ranks);
  read_mean(found, saved_ranks, all);
  for (const Wanted& one : all) {
    if (!one.is_there) one.values.fill_(one.initial_value);
    (one.is_there ? averaged : missing).insert(one.state);
  }
  std::string text;
  if (!is_same && !averaged.empty())
    text = formatted("{}: the mean over the {} ranks that saved theirs, on each of {} ranks",
                     join(std::vector<std::string>(averaged.begin(), averaged.end()), ", "), saved_ranks.size(),
                     ranks.mesh.size(kDataAxis));
  if (!missing.empty())
    text += formatted("{}{}: not in the checkpoint, and begins at its initial value", text.empty() ? "" : "; ",
                      join(std::vector<std::string>(missing.begin(), missing.end()), ", "));
  return text;
}

}  // namespace gannet
