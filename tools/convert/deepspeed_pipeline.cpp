// A pipeline's checkpoint: trained parameters come from its stages' optimizers, frozen ones and
// buffers from its layers' files.
//
// A layer's file has names within the layer ("weight"). In the whole model they are "3.weight", for
// layer 3, or "tied_modules.<key>.weight" for a layer of a TiedLayerSpec. At ZeRO stage 1 the
// stages' param_shapes have these names. Tied layers are not recorded: a layer counts as tied if
// no known parameter or buffer has the layer's prefix, and its tensors equal a tied module's.
#include <algorithm>
#include <map>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "checkpoint/numbers.h"
#include "convert/deepspeed_state.h"
#include "files/names.h"

namespace gannet::convert {
namespace {

constexpr std::string_view kTied = "tied_modules.";

std::string name_of(const files::Node& file) { return files::last_name(file.file()->path()); }

std::string own_prefix(const DeepSpeedLayer& layer) { return formatted("{}.", layer.number); }

// The names of all stages' buffers, in the whole model.
std::set<std::string> buffer_names(const DeepSpeedFolder& folder) {
  std::set<std::string> names;
  for (const DeepSpeedFolder& stage : folder.stages)
    if (const auto buffers = stage.models[0].find("buffer_names"))
      for (const files::Node& name : buffers->items()) names.insert(name.text());
  return names;
}

std::vector<DeepSpeedState> states_of_stages(const DeepSpeedFolder& folder, bool weights_only) {
  if (folder.optimizers.empty()) return pipeline_without_zero(folder, weights_only);
  std::vector<DeepSpeedState> states;
  for (const DeepSpeedFolder& stage : folder.stages) add_sharded(stage, weights_only, states.emplace_back());
  return states;
}

// Finds the shapes of flat parameters in the layers' files. Those of a tied module are in a layer
// without parameters of its own.
void find_shapes(const DeepSpeedFolder& folder, DeepSpeedState& state) {
  std::set<std::string> with_own;
  for (const ImportedTensor& tensor : state.trained) with_own.insert(tensor.name.substr(0, tensor.name.find('.') + 1));
  for (ImportedTensor& tensor : state.trained) {
    const bool is_tied = tensor.name.starts_with(kTied);
    const size_t dot = tensor.name.find('.', is_tied ? kTied.size() : 0);
    const std::string prefix = tensor.name.substr(0, dot + 1), key = tensor.name.substr(dot + 1);
    const auto has = [&](const DeepSpeedLayer& layer) {
      if (is_tied ? with_own.contains(own_prefix(layer)) : own_prefix(layer) != prefix) return false;
      const auto found = layer.tensors.find(key);
      if (!found || !found->is_tensor() || found->tensor().numel() != tensor.shape[0]) return false;
      if (is_tied && !have_equal_values(tensor.pieces, files::whole(*found), found->tensor().dtype)) return false;
      tensor.shape = found->tensor().sizes;
      return true;
    };
    if (std::none_of(folder.layers.begin(), folder.layers.end(), has))
      throw Error(ErrorCode::kNotFound,
                  formatted("{}: no file of a layer has the parameter {}, of {} elements, and the save has no param_shapes",
                            folder.path, tensor.name, tensor.shape[0]),
                  "copy the files of all layers into one folder, or let DeepSpeed save it at ZeRO stage 1");
  }
}

// The stages' parameters, each name once: stages that share a tied module use the same name for it.
DeepSpeedState merged(std::vector<DeepSpeedState> stages) {
  DeepSpeedState all;
  all.stage = stages[0].stage;
  all.has_shapes = stages[0].has_shapes;
  all.scaler = stages[0].scaler;
  all.notes = stages[0].notes;
  all.aliases = stages[0].aliases;
  std::map<std::string, std::pair<size_t, size_t>> places;  // name -> its stage, and its index in all.trained
  for (size_t s = 0; s < stages.size(); ++s) {
    for (ImportedTensor& tensor : stages[s].trained) {
      const auto [place, is_new] = places.try_emplace(tensor.name, s, all.trained.size());
      if (is_new) {
        all.trained.push_back(std::move(tensor));
        continue;
      }
      const ImportedTensor& kept = all.trained[place->second.second];
      if (!have_equal_values(kept.pieces, tensor.pieces, kept.dtype))
        all.notes.push_back(formatted("{} of stage {}: its values differ from those of stage {}, which are taken", tensor.name, s,
                                      place->second.first));
    }
    all.steps.insert(stages[s].steps.begin(), stages[s].steps.end());
    all.has_states |= stages[s].has_states;
    // A stage without parameters in a group may lack the group.
    if (stages[s].groups.size() > all.groups.size()) all.groups = std::move(stages[s].groups);
  }
  return all;
}

// Determines the names of a layer's tensors in the whole model.
class LayerNames {
 public:
  LayerNames(const DeepSpeedState& state, const std::set<std::string>& buffers) : buffers_(buffers) {
    for (const ImportedTensor& tensor : state.trained) {
      trained_.emplace(tensor.name, &tensor);
      if (const size_t dot = tensor.name.find('.', kTied.size()); tensor.name.starts_with(kTied) && dot != std::string::npos)
        tied_[tensor.name.substr(0, dot + 1)].push_back(&tensor);
    }
  }

  // "3." or "tied_modules.embed."
  std::string prefix_of(const DeepSpeedLayer& layer) const {
    const std::string own = own_prefix(layer);
    const auto tensors = layer.tensors.entries();
    const bool has_own = std::any_of(tensors.begin(), tensors.end(), [&](const auto& entry) {
      return trained_.contains(own + entry.first) || buffers_.contains(own + entry.first);
    });
    if (has_own) return own;
    for (const auto& [prefix, parameters] : tied_)
      if (std::all_of(parameters.begin(), parameters.end(),
                      [&](const ImportedTensor* one) { return has(layer, one->name.substr(prefix.size()), *one); }))
        return prefix;
    return own;
  }

 private:
  // Whether the layer's tensor equals the parameter, rounded to the model's dtype.
  static bool has(const DeepSpeedLayer& layer, const std::string& name, const ImportedTensor& parameter) {
    const auto found = layer.tensors.find(name);
    return found && found->is_tensor() && found->tensor().sizes == parameter.shape &&
           have_equal_values(parameter.pieces, files::whole(*found), found->tensor().dtype);
  }

  std::map<std::string, const ImportedTensor*> trained_;
  std::map<std::string, std::vector<const ImportedTensor*>> tied_;  // "tied_modules.embed.": its trained parameters
  const std::set<std::string>& buffers_;
};

// Every trained parameter of a layer must be in the layer's file: a missing file may have held
// frozen parameters and buffers as well.
void check_layers(const DeepSpeedFolder& folder, const DeepSpeedState& state) {
  std::map<std::string, const DeepSpeedLayer*> layers;
  for (const DeepSpeedLayer& layer : folder.layers) layers.emplace(own_prefix(layer), &layer);
  for (const ImportedTensor& tensor : state.trained) {
    const std::string prefix = tensor.name.substr(0, tensor.name.find('.') + 1);
    if (tensor.name.starts_with(kTied) || prefix.empty()) continue;
    const auto layer = layers.find(prefix);
    if (layer == layers.end())
      throw Error(ErrorCode::kNotFound,
                  formatted("{}: the file of layer {} is missing, which has the parameter {}", folder.path,
                            prefix.substr(0, prefix.size() - 1), tensor.name),
                  "copy the files of all layers (layer_00-model_states.pt ...) into one folder");
    const auto found = layer->second->tensors.find(tensor.name.substr(prefix.size()));
    if (!found || !found->is_tensor() || found->tensor().sizes != tensor.shape)
      throw Error(ErrorCode::kMismatch,
                  formatted("{}: the optimizer has the parameter {}{}, and {} {}", folder.path, tensor.name,
                            shape_text(tensor.shape), name_of(layer->second->tensors),
                            found && found->is_tensor() ? "has it as " + shape_text(found->tensor().sizes) : "does not have it"),
                  "are the files of one save?");
  }
}

// Adds the frozen parameters and the buffers of all layers.
void add_untrained(const DeepSpeedFolder& folder, const std::set<std::string>& buffers, DeepSpeedState& state) {
  std::set<std::string> known;
  for (const ImportedTensor& tensor : state.trained) known.insert(tensor.name);
  for (const auto& [alias, name] : state.aliases) known.insert(alias);
  const LayerNames names(state, buffers);
  for (const DeepSpeedLayer& layer : folder.layers) {
    const std::string prefix = names.prefix_of(layer);
    if (prefix.starts_with(kTied))
      state.notes.push_back(formatted("the tensors of {}: they are those of {}, which are kept once", name_of(layer.tensors),
                                      prefix.substr(0, prefix.size() - 1)));
    for (const auto& [key, node] : layer.tensors.entries()) {
      const std::string name = prefix + key;
      if (!known.insert(name).second || node.is_none()) continue;
      if (!node.is_tensor())
        state.notes.push_back(formatted("{}: it is {}, not a tensor", name, node.object().kind_name()));
      else
        (buffers.contains(name) ? state.buffers : state.frozen)
            .push_back({name, node.tensor().sizes, node.tensor().dtype, files::whole(node), {}});
    }
  }
}

}  // namespace

DeepSpeedState sort_out_pipeline(const DeepSpeedFolder& folder, bool weights_only) {
  DeepSpeedState state = merged(states_of_stages(folder, weights_only));
  if (const auto ranks = folder.models[0].find("dp_world_size"))
    state.ranks = static_cast<uint32_t>(
        checkpoint::checked_count(ranks->integer(), formatted("{}: {}", ranks->file()->path(), ranks->where()), 1, 1'000'000));
  if (state.stage > 1)
    throw Error(ErrorCode::kUnsupported, formatted("{}: a pipeline at ZeRO stage {}", folder.path, state.stage),
                "DeepSpeed's pipelines have stages 0 and 1");
  if (!state.has_shapes) find_shapes(folder, state);
  check_layers(folder, state);
  add_untrained(folder, buffer_names(folder), state);
  state.frozen_excluded = state.frozen.empty();  // not recorded at stages 0 and 1
  return state;
}

}  // namespace gannet::convert
