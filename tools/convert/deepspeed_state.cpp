#include "convert/deepspeed_state.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <limits>

#include "base/format.h"
#include "checkpoint/numbers.h"
#include "files/bytes.h"
#include "files/pickle_classes.h"

namespace gannet::convert {
namespace {

void add_buffers(const files::Node& model, DeepSpeedState& state, std::set<std::string>& known) {
  const auto names = model.find("buffer_names");
  if (!names) return;
  const files::Node module = model.at("module");
  for (const files::Node& name : names->items()) {
    known.insert(name.text());
    const auto buffer = module.find(name.text());
    if (!buffer) continue;  // a buffer that is not persistent
    state.buffers.push_back({name.text(), buffer->tensor().sizes, buffer->tensor().dtype, files::whole(*buffer), {}});
  }
}

// Stage 3 also shards frozen parameters; each rank's file has its fragment.
void add_frozen_fragments(const DeepSpeedFolder& folder, DeepSpeedState& state, std::set<std::string>& known) {
  const auto shapes = folder.models[0].find("frozen_param_shapes");
  if (!shapes) return;
  for (const auto& [name, shape_node] : shapes->entries()) {
    known.insert(name);
    const std::vector<int64_t> shape = shape_node.shape();
    const int64_t numel = numel_of(shape_node, shape);
    files::ConcatenatedTensors fragments;
    for (const files::Node& model : folder.models) fragments.add(model.at("frozen_param_fragments").at(name));
    if (fragments.numel() < numel)
      throw Error(ErrorCode::kMismatch,
                  formatted("{}: the ranks' fragments of the frozen parameter {} have {} elements, its shape {}", folder.path,
                            name, fragments.numel(), numel),
                  "are the files of one save?");
    state.frozen.push_back(
        {name, shape, folder.models[0].at("frozen_param_fragments").at(name).tensor().dtype, fragments.cut(0, numel), {}});
  }
}

// Two names for the same location in a storage are one tensor. ZeRO stages also record ties in
// shared_params.
void add_ties(const files::Node& model, DeepSpeedState& state, std::set<std::string>& known) {
  if (const auto shared = model.find("shared_params"))
    for (const auto& [alias, name] : shared->entries())
      if (known.insert(alias).second) state.aliases.emplace_back(alias, name.text());
  std::map<std::string, std::string> places;
  for (const auto& [name, node] : model.at("module").entries()) {
    if (!node.is_tensor() || node.tensor().numel() == 0 || known.count(name)) continue;
    const auto [first, is_new] = places.try_emplace(place_of(node.tensor()), name);
    if (is_new) continue;
    state.aliases.emplace_back(name, first->second);
    known.insert(name);
  }
}

// Adds the remaining tensors of the model's state_dict: the frozen parameters.
void add_rest(const DeepSpeedFolder& folder, DeepSpeedState& state, std::set<std::string>& known) {
  for (const auto& [name, node] : folder.models[0].at("module").entries()) {
    if (known.count(name) || node.is_none()) continue;
    if (const char* why = node.is(files::Object::Kind::kRecord) ? files::why_not_read(node.object().text) : nullptr)
      throw Error(ErrorCode::kUnsupported, formatted("{}: {} of the model is an object of {}, which is not read: {}", folder.path,
                                                     name, files::shown(node.object().text), why));
    if (!node.is_tensor()) {
      state.notes.push_back(formatted("{} of the model: it is {}, not a tensor", name, node.object().kind_name()));
      continue;
    }
    if (node.tensor().numel() == 0 && (state.stage == 3 || !folder.universal.empty()))
      continue;  // placeholder for a sharded parameter
    state.frozen.push_back({name, node.tensor().sizes, node.tensor().dtype, files::whole(node), {}});
  }
}

}  // namespace

DeepSpeedState sort_out(const DeepSpeedFolder& folder, bool weights_only) {
  if (!folder.stages.empty()) return sort_out_pipeline(folder, weights_only);
  DeepSpeedState state;
  const files::Node& model = folder.models[0];
  if (const auto ranks = model.find("dp_world_size"))
    state.ranks = static_cast<uint32_t>(
        checkpoint::checked_count(ranks->integer(), formatted("{}: {}", ranks->file()->path(), ranks->where()), 1, 1'000'000));
  std::set<std::string> known;
  add_buffers(model, state, known);
  add_ties(model, state, known);
  if (!folder.universal.empty())
    add_universal(folder, weights_only, state);
  else if (folder.optimizers.empty())
    add_whole(folder, weights_only, known, state);
  else
    add_sharded(folder, weights_only, state);
  for (const auto& tensor : state.trained)
    if (!known.insert(tensor.name).second)
      throw Error(ErrorCode::kCorrupt,
                  formatted("{}: {} occurs twice: as a parameter, and as a buffer or the other name of a tied parameter",
                            folder.path, tensor.name));
  if (state.stage == 3 || !folder.universal.empty()) add_frozen_fragments(folder, state, known);
  add_rest(folder, state, known);
  // A save with exclude_frozen_parameters has no frozen parameters and, at stages 2 and 3, no
  // frozen_param_shapes, which is present there even if the model has no frozen parameters. Stages
  // 0 and 1 never have it, so such a save looks like a model without frozen parameters.
  state.frozen_excluded = state.frozen.empty() && !model.find("frozen_param_shapes");
  return state;
}

std::string frozen_note(const DeepSpeedState& state) {
  return state.stage >= 2
             ? "frozen parameters: the save left them out"
             : "frozen parameters: the save has none, or left them out (exclude_frozen_parameters); those of the model "
               "stay as they are";
}

int64_t group_with(const std::vector<files::Node>& groups, int64_t number) {
  for (size_t g = 0; g < groups.size(); ++g)
    for (const files::Node& param : groups[g].at("params").items())
      if (param.integer() == number) return static_cast<int64_t>(g);
  return -1;
}

int64_t numel_of(const files::Node& place, const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (const int64_t size : shape)
    if (__builtin_mul_overflow(numel, size, &numel) || numel > std::numeric_limits<int64_t>::max() / 16)
      place.refuse("a shape that fits into memory");
  return numel;
}

bool have_equal_values(const files::StoredPieces& one, const files::StoredPieces& other, c10::ScalarType dtype) {
  const int64_t numel = files::numel_of(one);
  if (files::numel_of(other) != numel) return false;
  constexpr int64_t kChunk = 1 << 20;
  for (int64_t done = 0; done < numel; done += kChunk) {
    const int64_t count = std::min(kChunk, numel - done);
    if (!files::read(one, done, count, dtype).equal(files::read(other, done, count, dtype))) return false;
  }
  return true;
}

c10::ScalarType master_dtype(c10::ScalarType saved) { return saved == c10::kDouble ? c10::kDouble : c10::kFloat; }

const files::StoredTensor& floating(const files::Node& tensor) {
  if (!c10::isFloatingType(tensor.tensor().dtype)) tensor.refuse("a tensor of floating-point numbers");
  return tensor.tensor();
}

OptimizerStates::OptimizerStates(const files::Node& state_dict) {
  if (state_dict.is_sequence())
    throw Error(ErrorCode::kUnsupported,
                formatted("{}: its optimizer states are in the elastic layout (zero_optimization.elastic_checkpoint)",
                          state_dict.file()->path()),
                "save with elastic_checkpoint false");
  path_ = state_dict.file()->path();
  for (const auto& [index, state] : state_dict.at("state").entries()) states_.emplace(index, state);
  groups_ = state_dict.at("param_groups").items();
}

std::vector<int64_t> OptimizerStates::indices(size_t group) const {
  std::vector<int64_t> indices;
  if (group >= groups_.size())
    throw Error(ErrorCode::kMismatch,
                formatted("{}: the optimizer has {} groups, and its masters have more", path_, groups_.size()),
                "are the files of one save, and whole?");
  for (const files::Node& index : groups_[group].at("params").items()) indices.push_back(index.integer());
  return indices;
}

std::map<std::string, files::Node> OptimizerStates::tensors(int64_t index, int64_t least, int64_t most,
                                                            std::set<double>& steps) const {
  std::map<std::string, files::Node> tensors;
  const auto found = states_.find(std::to_string(index));
  if (found == states_.end()) return tensors;
  for (const auto& [name, value] : found->second.entries()) {
    if (value.is_none()) continue;
    if (name == "step") {
      const double step = value.number();
      checkpoint::checked_count(step, formatted("{}: {}", value.file()->path(), value.where()));
      steps.insert(step);
    } else if (value.is_tensor() && value.tensor().numel() >= least && value.tensor().numel() <= most) {
      floating(value);
      tensors.emplace(name, value);
    } else {
      const std::string what = value.is_tensor() ? formatted("a tensor of {}{}", value.tensor().numel(),
                                                             value.tensor().numel() == 1 ? " element" : " elements")
                                                 : std::string(value.object().kind_name());
      throw Error(ErrorCode::kUnsupported,
                  formatted("{}: the optimizer state '{}' ({}) is {}, where the parameters have {}", value.file()->path(), name,
                            value.where(), what, least),
                  "states of Adam, SGD and others that have one number per element are imported; --weights-only leaves them out");
    }
  }
  return tensors;
}

}  // namespace gannet::convert
