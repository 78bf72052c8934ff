#include "engine/checkpoint/rank_states.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_map>

#include "base/format.h"
#include "base/text.h"
#include "engine/checkpoint/state_entries.h"

namespace gannet {
namespace {

// One state of one parameter or, if `state` is null, its master.
struct OwnState {
  const Optimizer::State* state;
  std::string parameter;
  size_t group;
  at::Tensor values;  // a view of the values in the engine's memory
  std::string name_of(const std::string& rank) const {
    return state ? formatted("rank_state/{}/{}/{}", rank, state->name, parameter)
                 : formatted("rank_parameter/{}/{}", rank, parameter);
  }
  std::string described() const { return state ? state->name : std::string("parameters"); }
  bool is_local() const { return !state || state->is_local(); }  // whether it differs between ranks only after local steps
};
using LocalTest = std::function<bool(const Range& range, const std::string& parameter)>;

// Collects the per-rank states of all ranges, and the masters that differ between ranks. `differ`:
// whether the ranks have different values of a parameter.
std::vector<OwnState> all_own(const EngineBase::Impl& impl, const LocalTest& differ) {
  std::vector<OwnState> all;
  for (const Range& range : impl.store.ranges()) {
    const auto& optimizer = impl.groups[range.group].optimizer;
    if (!optimizer || !optimizer->owns_grad_reduction()) continue;
    for (const TrainedParameter& parameter : range.parameters) {
      const bool is_apart = differ(range, parameter.name);
      for (size_t s = 0; s < optimizer->states().size(); ++s)
        if (const Optimizer::State& state = optimizer->states()[s]; state.is_of_rank() || (state.is_local() && is_apart))
          all.push_back({&state, parameter.name, range.group,
                         range.states[s].get(parameter.offset, parameter.numel).view(parameter.shape)});
      if (is_apart) all.push_back({nullptr, parameter.name, range.group, range.whole_master(parameter)});
    }
  }
  return all;
}

// A state to read from the selected saved ranks.
struct WantedState {
  OwnState own;
  bool is_there;  // the checkpoint has it for each of those ranks
};

std::vector<WantedState> wanted_from(const checkpoint::Opened& found, const std::vector<std::string>& saved_ranks,
                                     const std::vector<OwnState>& all) {
  std::vector<WantedState> wanted;
  for (const OwnState& own : all)
    wanted.push_back({own, std::all_of(saved_ranks.begin(), saved_ranks.end(), [&](const std::string& rank) {
                        const checkpoint::TensorInfo* saved = found.find(own.name_of(rank));
                        return saved && saved->numel() == own.values.numel();
                      })});
  return wanted;
}

// Reads the mean over the saved ranks, in rank order, with only one rank's values in memory at a
// time.
void read_mean(const checkpoint::Opened& found, const std::vector<std::string>& saved_ranks,
               const std::vector<WantedState>& all) {
  for (size_t r = 0; r < saved_ranks.size(); ++r) {
    std::vector<std::pair<const WantedState*, at::Tensor>> read;
    std::vector<checkpoint::Target> targets;
    for (const WantedState& one : all) {
      if (!one.is_there || one.own.values.numel() == 0) continue;
      const checkpoint::TensorInfo& saved = *found.find(one.own.name_of(saved_ranks[r]));
      read.emplace_back(&one, at::empty({saved.numel()}, saved.dtype));
      targets.push_back({saved.name, 0, read.back().second});
    }
    found.read(targets);
    for (const auto& [one, values] : read) {
      const at::Tensor shaped = values.view(one->own.values.sizes());
      r == 0 ? one->own.values.copy_(shaped) : one->own.values.add_(shaped);
    }
  }
  if (saved_ranks.size() < 2) return;
  for (const WantedState& one : all)
    if (one.is_there) one.own.values.div_(static_cast<double>(saved_ranks.size()));
}

std::string joined(const std::set<std::string>& names) {
  return join(std::vector<std::string>(names.begin(), names.end()), ", ");
}

}  // namespace

bool ranks_differ(const EngineBase::Impl& impl, size_t group) {
  return ranks_differ(impl, impl.groups[group], impl.progress.applied_steps);
}

bool ranks_differed(const checkpoint::Opened& found, const std::string& parameter) {
  return found.find(formatted("rank_parameter/{}/{}", rank_name(found.mesh(), 0), parameter)) != nullptr;
}

at::Tensor weights_to_use(const EngineBase::Impl& impl, const Range& range, size_t parameter) {
  const EvaluationWeights& weights = impl.updater.evaluation();
  if (weights.are_in_use() || !ranks_differ(impl, range.group)) return {};
  return weights.of(range, parameter, impl.progress.applied_steps);
}

std::vector<StateEntry> common_entries(const EngineBase::Impl& impl) {
  std::vector<StateEntry> entries = state_entries(impl);
  std::unordered_map<std::string, at::Tensor> weights;
  for (const Range& range : impl.store.ranges())
    for (size_t p = 0; p < range.parameters.size(); ++p)
      if (at::Tensor values = weights_to_use(impl, range, p); values.defined())
        weights.emplace(range.parameters[p].name, std::move(values));
  for (StateEntry& entry : entries)
    if (const auto found = weights.find(entry.name); entry.kind == StateEntry::Kind::kTrained && found != weights.end())
      entry.whole = found->second;
  return entries;
}

void add_rank_states(const EngineBase::Impl& impl, const std::string& rank, std::vector<checkpoint::Slice>& slices) {
  for (const OwnState& own :
       all_own(impl, [&](const Range& range, const std::string&) { return ranks_differ(impl, range.group); }))
    slices.push_back({own.name_of(rank), own.values.sizes().vec(), 0, own.values.flatten()});
}

std::string read_rank_states(const EngineBase::Impl& impl, const checkpoint::Opened& found, const checkpoint::Ranks& ranks,
                             bool takes_parameters) {
  const MeshShape& saved_mesh = found.mesh();
  const uint32_t source = source_rank(saved_mesh, ranks.mesh, ranks.rank);
  const bool is_same = saved_mesh.size(kDataAxis) == ranks.mesh.size(kDataAxis);
  std::vector<std::string> saved_ranks;
  for (const uint32_t rank : saved_mesh.group(kDataAxis, source)) saved_ranks.push_back(rank_name(saved_mesh, rank));
  std::vector<OwnState> own, mean;
  for (OwnState& one :
       all_own(impl, [&](const Range&, const std::string& parameter) { return ranks_differed(found, parameter); })) {
    if (!one.state && !takes_parameters) continue;
    const bool stays = is_same && (!one.is_local() || ranks_differ(impl, one.group));
    (stays ? own : mean).push_back(std::move(one));
  }
  std::set<std::string> averaged, missing;
  const auto take = [&](const std::vector<std::string>& from, const std::vector<OwnState>& some, std::set<std::string>& taken) {
    const std::vector<WantedState> all = wanted_from(found, from, some);
    read_mean(found, from, all);
    for (const WantedState& one : all) {
      if (one.is_there) {
        taken.insert(one.own.described());
      } else if (one.own.state) {  // a parameter keeps the weights to use
        one.own.values.fill_(one.own.state->initial_value);
        missing.insert(one.own.described());
      }
    }
  };
  std::set<std::string> kept;
  take({rank_name(saved_mesh, source)}, own, kept);
  take(saved_ranks, mean, averaged);
  std::string text;
  if (!averaged.empty())
    text = formatted("{}: the mean over the {} ranks that saved theirs, on each of {} ranks", joined(averaged),
                     saved_ranks.size(), ranks.mesh.size(kDataAxis));
  if (!missing.empty())
    text += formatted("{}{}: not in the checkpoint, and begins at its initial value", text.empty() ? "" : "; ", joined(missing));
  return text;
}

}  // namespace gannet
