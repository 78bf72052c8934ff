// Stage 0: one file, full parameters. The optimizer numbers its parameters and does not name them,
// so they are matched by the model's order, by their shapes, and, if there are flat fp32 masters,
// by their values.
//
//   fp32                                    optimizer = torch's state_dict; the masters are the model's own tensors
//   fp16, bf16                              optimizer.fp32_groups_flat, [groups] flat; optimizer.optimizer_state_dict
//   fp16, bf16, with a foreign optimizer    optimizer.fp32_groups, [groups][parameters]; optimizer.optimizer_state_dict
#include <ATen/ops/equal.h>

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "convert/assign.h"
#include "convert/deepspeed_state.h"

namespace gannet::convert {
namespace {

std::vector<NamedNode> candidates_of(const files::Node& model, const std::set<std::string>& untrained) {
  std::vector<NamedNode> candidates;
  for (auto& [name, node] : model.at("module").entries())
    if (node.is_tensor() && !untrained.count(name) && c10::isFloatingType(node.tensor().dtype))
      candidates.emplace_back(name, node);
  return candidates;
}

std::vector<int> groups_of(const files::Node& optimizer, const std::vector<int64_t>& sizes, const std::vector<int64_t>& ends,
                           const std::function<bool(size_t, int64_t, size_t)>& fits) {
  Assignment assignment = assign(sizes, ends, fits);
  if (!assignment.groups) throw NoAssignment(optimizer, assignment.ambiguous);
  return *assignment.groups;
}

// fp32: a parameter's state has the parameter's shape. A parameter without states had no gradient:
// it is frozen.
void add_by_number(const files::Node& optimizer, const std::vector<NamedNode>& candidates, DeepSpeedState& state) {
  const OptimizerStates states(optimizer);
  struct ParameterStates {
    std::map<std::string, files::Node> tensors;
  };
  std::vector<std::vector<ParameterStates>> slots;
  std::vector<int64_t> ends;
  for (size_t g = 0; g < states.groups().size(); ++g) {
    slots.emplace_back();
    for (const int64_t index : states.indices(g))
      slots.back().push_back({states.tensors(index, 0, std::numeric_limits<int64_t>::max(), state.steps)});
    ends.push_back(static_cast<int64_t>(slots.back().size()));
  }
  const auto fits = [&](size_t group, int64_t place, size_t candidate) {
    for (const auto& [name, tensor] : slots[group][place].tensors)
      if (tensor.tensor().sizes != candidates[candidate].second.tensor().sizes) return false;
    return true;
  };
  const auto groups = groups_of(optimizer, std::vector<int64_t>(candidates.size(), 1), ends, fits);
  std::vector<size_t> places(ends.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (groups[i] < 0) continue;
    const auto& [name, node] = candidates[i];
    ParameterStates& slot = slots[groups[i]][places[groups[i]]++];
    if (slot.tensors.empty()) continue;  // imported as a frozen parameter
    ImportedTensor& tensor = state.trained.emplace_back(
        ImportedTensor{name, node.tensor().sizes, master_dtype(node.tensor().dtype), files::whole(node), {}, groups[i]});
    for (const auto& [key, value] : slot.tensors) tensor.states.emplace(key, files::whole(value));
    state.has_states = true;
  }
  if (state.has_states) return;
  for (size_t i = 0; i < candidates.size(); ++i)  // the optimizer has no states or took no step yet
    if (groups[i] >= 0)
      state.trained.push_back({candidates[i].first,
                               candidates[i].second.tensor().sizes,
                               master_dtype(candidates[i].second.tensor().dtype),
                               files::whole(candidates[i].second),
                               {},
                               groups[i]});
}

// fp16, bf16: the model's tensors are the rounded masters, so each master is identified by its
// values.
void add_by_value(const files::Node& optimizer, const std::vector<NamedNode>& candidates, DeepSpeedState& state) {
  const OptimizerStates states(optimizer.at("optimizer_state_dict"));
  const auto flat_groups = optimizer.find("fp32_groups_flat");
  std::vector<files::ConcatenatedTensors> masters;
  std::vector<std::map<std::string, files::ConcatenatedTensors>> moments;
  std::vector<int64_t> ends;
  for (const files::Node& group : (flat_groups ? *flat_groups : optimizer.at("fp32_groups")).items()) {
    const size_t g = masters.size();
    std::vector<files::Node> tensors;
    if (flat_groups)
      tensors = {group};
    else
      tensors = group.items();
    masters.emplace_back();
    moments.emplace_back();
    if (g >= states.groups().size() || states.indices(g).size() != tensors.size())
      throw Error(ErrorCode::kMismatch,
                  formatted("{}: {} has other parameters than the optimizer's param_groups", group.file()->path(), group.where()),
                  "is the file whole?");
    const auto indices = states.indices(g);
    std::vector<std::map<std::string, files::Node>> found;
    std::set<std::string> names;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const int64_t numel = tensors[i].tensor().numel();
      found.push_back(states.tensors(indices[i], numel, numel, state.steps));
      for (const auto& [name, tensor] : found.back()) names.insert(name);
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      floating(tensors[i]);
      masters[g].add(tensors[i]);
      for (const auto& name : names) {
        const auto at = found[i].find(name);
        if (at == found[i].end())
          moments[g][name].add_zeros(tensors[i].tensor().numel());
        else
          moments[g][name].add(at->second);
      }
    }
    ends.push_back(masters[g].numel());
  }
  std::vector<int64_t> sizes;
  for (const auto& [name, node] : candidates) sizes.push_back(node.tensor().numel());
  const auto fits = [&](size_t group, int64_t place, size_t candidate) {
    const files::Node& node = candidates[candidate].second;
    const int64_t numel = sizes[candidate];
    constexpr int64_t kChunk = 1 << 20;
    for (int64_t done = 0; done < numel; done += kChunk) {
      const int64_t count = std::min(kChunk, numel - done);
      const at::Tensor rounded =
          files::read(masters[group].cut(place + done, count), 0, count, c10::kFloat).to(node.tensor().dtype);
      if (!rounded.equal(files::read(files::whole(node), done, count, node.tensor().dtype))) return false;
    }
    return true;
  };
  const auto groups = groups_of(optimizer, sizes, ends, fits);
  std::vector<int64_t> places(ends.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (groups[i] < 0) continue;
    const auto& [name, node] = candidates[i];
    const size_t g = static_cast<size_t>(groups[i]);
    const int64_t numel = node.tensor().numel();
    ImportedTensor& tensor = state.trained.emplace_back(
        ImportedTensor{name, node.tensor().sizes, c10::kFloat, masters[g].cut(places[g], numel), {}, groups[i]});
    for (const auto& [key, values] : moments[g]) tensor.states.emplace(key, values.cut(places[g], numel));
    places[g] += numel;
    state.has_states |= !moments[g].empty();
  }
}

}  // namespace

NoAssignment::NoAssignment(const files::Node& optimizer, bool is_ambiguous)
    : Error(
          is_ambiguous
              ? Error(ErrorCode::kUnsupported,
                      formatted("{}: stage 0 stores the optimizer's parameters by number only, and more than one of the model's "
                                "parameters matches a number",
                                optimizer.file()->path()),
                      "let DeepSpeed load it and save it at stage 1, which keeps names; --weights-only leaves the states out")
              : Error(ErrorCode::kMismatch,
                      formatted("{}: the optimizer's parameters are not the model's: their sizes or values do not match in the "
                                "model's order",
                                optimizer.file()->path()),
                      "--weights-only leaves the optimizer's states out")),
      ambiguous(is_ambiguous) {}

void add_numbered(const files::Node& optimizer, const std::vector<NamedNode>& candidates, DeepSpeedState& state) {
  if (optimizer.find("cur_scale")) state.scaler = {optimizer};
  if (optimizer.find("fp32_groups_flat") || optimizer.find("fp32_groups")) {
    add_by_value(optimizer, candidates, state);
    state.groups = optimizer.at("optimizer_state_dict").at("param_groups").items();
  } else {
    add_by_number(optimizer, candidates, state);
    state.groups = optimizer.at("param_groups").items();
  }
}

void add_whole(const DeepSpeedFolder& folder, bool weights_only, const std::set<std::string>& untrained, DeepSpeedState& state) {
  const files::Node& model = folder.models[0];
  const auto candidates = candidates_of(model, untrained);
  const auto optimizer = model.find("optimizer");
  if (!optimizer || weights_only) {
    for (const auto& [name, node] : candidates)
      state.trained.push_back({name, node.tensor().sizes, master_dtype(node.tensor().dtype), files::whole(node), {}});
    if (!optimizer) state.notes.push_back("optimizer states: the save had no optimizer");
    return;
  }
  add_numbered(*optimizer, candidates, state);
}

}  // namespace gannet::convert
