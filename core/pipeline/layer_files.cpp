#include "pipeline/layer_files.h"

#include <ATen/core/grad_mode.h>
#include <gannet/error.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/format.h"
#include "base/outcome.h"
#include "base/text.h"
#include "control/world.h"

namespace gannet::pipeline {
namespace {

constexpr const char* kAreOneSave = "are the files of one save, and whole?";

// A fingerprint of a tensor's shape and bytes.
uint64_t hash_of(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.detach().to(at::kCPU).contiguous();
  const std::string_view bytes(static_cast<const char*>(whole.const_data_ptr()), whole.nbytes());
  return std::hash<std::string_view>()(bytes) ^ std::hash<std::string>()(shape_text(whole.sizes().vec()));
}

void check_fits(const std::string& where, const std::string& name, const at::Tensor& value, const at::Tensor& tensor,
                const std::vector<int64_t>& shape) {
  const bool are_numbers = at::isFloatingType(value.scalar_type()) && at::isFloatingType(tensor.scalar_type());
  if (value.sizes() != at::IntArrayRef(shape))
    throw Error(ErrorCode::kMismatch,
                formatted("{}: '{}' is {} there, and {} here", where, name, shape_text(value.sizes().vec()), shape_text(shape)),
                "load them into the model that they are of");
  if (!are_numbers && value.scalar_type() != tensor.scalar_type())
    throw Error(ErrorCode::kMismatch,
                formatted("{}: '{}' is of {} there, and of {} here", where, name, c10::toString(value.scalar_type()),
                          c10::toString(tensor.scalar_type())),
                "load them into the model that they are of");
}

// The properties of a tensor that must match on all ranks.
struct TensorNote {
  uint64_t tensor_rank, layer, hash;
  std::string name;
};

std::string text_of(const std::string& step, const std::vector<TensorNote>& notes) {
  std::string text = step + "\n";
  for (const TensorNote& one : notes) text += formatted("{} {} {} {}\n", one.tensor_rank, one.layer, one.hash, one.name);
  return text;
}

// Throws unless all ranks read files of the same step, and all layers and ranks that share a tensor agree on its values.
void compare(const std::string& call, const std::vector<std::string>& texts) {
  std::map<std::pair<uint64_t, std::string>, TensorNote> first;
  std::string step;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream lines(texts[rank]);
    std::string line;
    std::getline(lines, line);
    if (rank == 0) step = line;
    if (line != step && !line.empty() && !step.empty())
      throw Error(
          ErrorCode::kMismatch,
          formatted("{}: rank {} reads files that were saved at step {}, and rank 0 those of step {}", call, rank, line, step),
          kAreOneSave);
    if (step.empty()) step = line;  // rank 0's layers have no tensors
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      TensorNote one;
      words >> one.tensor_rank >> one.layer >> one.hash;
      words.get();  // the space before the name
      std::getline(words, one.name);
      const auto [place, is_new] = first.emplace(std::pair(one.tensor_rank, one.name), one);
      if (!is_new && place->second.hash != one.hash)
        throw Error(ErrorCode::kMismatch,
                    formatted("{}: '{}' has other values for layer {} than for layer {}, or on another rank, and is one tensor",
                              call, printable(one.name), one.layer, place->second.layer),
                    "give every layer and rank that has it the same values");
    }
  }
}

}  // namespace

LayerFiles::LayerFiles(EngineBase& engine, RankContext& ranks, const pipe::ModuleImpl& module, const std::vector<Stage>& chunks)
    : engine_(engine), ranks_(ranks), module_(module), chunks_(chunks) {}

std::vector<LayerFiles::LayerTensors> LayerFiles::layers() const {
  std::unordered_map<const torch::nn::Module*, std::string> names;
  for (const auto& entry : module_.named_modules("", /*include_self=*/false)) names.emplace(entry.value().get(), entry.key());
  std::vector<LayerTensors> all;
  for (const Stage& chunk : chunks_)
    for (size_t l = 0; l < chunk.layers().size(); ++l) {
      LayerTensors& layer = all.emplace_back(LayerTensors{chunk.first_layer() + l, {}});
      std::map<std::string, bool> known;
      for (const auto& module : chunk.layers()[l].modules())
        for (const bool is_parameter : {true, false})
          for (const auto& entry : is_parameter ? module->named_parameters() : module->named_buffers()) {
            const std::string name = formatted("{}.{}", names.at(module.get()), entry.key());
            if (entry.value().defined() && known.emplace(name, true).second)
              layer.tensors.push_back({name, entry.value(), is_parameter});
          }
    }
  return all;
}

// The largest number of layers on a stage: parameters are gathered layer by layer, and all ranks of
// all stages make the same calls.
size_t LayerFiles::rounds() const {
  const std::vector<size_t>& bounds = module_.bounds();
  std::vector<size_t> counts(chunks_.front().count());
  for (size_t part = 0; part + 1 < bounds.size(); ++part)
    counts[chunks_.front().stage_of()[part]] += bounds[part + 1] - bounds[part];
  return *std::max_element(counts.begin(), counts.end());
}

std::string LayerFiles::path_of(const std::string& folder, size_t local_layer) const {
  size_t before = 0;
  for (const Stage& chunk : chunks_) {
    if (local_layer < before + chunk.layers().size()) {
      const size_t number = chunk.first_layer() + local_layer - before;
      const MeshShape& shape = ranks_.mesh->shape();
      const std::string model = shape.size(kTensorAxis) == 1
                                    ? std::string()
                                    : formatted("-model_{:02}", shape.coordinate(ranks_.mesh->world().rank(), kTensorAxis));
      return formatted("{}/layer_{:02}{}-model_states.safetensors", folder, number, model);
    }
    before += chunk.layers().size();
  }
  throw Error(ErrorCode::kArgument,
              formatted("ckpt_layer_path(): stage {} of the pipeline has {} layers, and there is no layer {}",
                        chunks_.front().index(), before, local_layer),
              "layers are counted from 0 within the stage");
}

// Ranks along the data axis have different experts, and only one of them writes a layer's file.
void LayerFiles::refuse_experts(const char* call) const {
  if (ranks_.expert_group)
    throw Error(ErrorCode::kUnsupported, formatted("{}(): ranks along data have different experts", call),
                "use save_checkpoint(), which has those of all ranks");
}

// Exchanges the ranks' outcomes. Returns all results, or throws the first error on every rank.
std::vector<std::string> LayerFiles::agreed(const char* call, const std::string& outcome) {
  const auto entered = ranks_.process_group->world()->enter(*ranks_.world_group, call, engine_.global_steps());
  return results_of(ranks_.world_group->gather_texts(outcome));
}

// Gathers the parameters of one of this stage's layers; a rank without that layer takes part too.
zero::GatheredParameters LayerFiles::whole_layer(const std::vector<LayerTensors>& own, size_t round) {
  std::vector<at::Tensor> parameters;
  if (round < own.size())
    for (const NamedTensor& one : own[round].tensors)
      if (one.is_parameter) parameters.push_back(one.tensor);
  return zero::GatheredParameters(engine_, std::move(parameters));
}

void LayerFiles::save(const std::string& folder) {
  refuse_experts("save_state_dict");
  const std::vector<LayerTensors> own = layers();
  const bool writes = ranks_.comm->rank() == 0;
  std::string mine = outcome_of([&] {
    std::error_code failure;
    if (writes) std::filesystem::create_directories(folder, failure);
    if (failure) throw Error(ErrorCode::kIo, formatted("cannot make the folder '{}': {}", folder, failure.message()));
  });
  for (size_t round = 0; round < rounds(); ++round) {
    const zero::GatheredParameters whole = whole_layer(own, round);
    if (!writes || round >= own.size() || own[round].tensors.empty() || error_in(mine)) continue;
    NamedTensors tensors;
    for (const NamedTensor& one : own[round].tensors) tensors.emplace_back(one.name, one.tensor.detach());
    mine = outcome_of([&] {
      save_safetensors(path_of(folder, round), tensors,
                       {{"format", "pt"},
                        {"layer", formatted("{}", own[round].number)},
                        {"layers", formatted("{}", module_.layer_count())},
                        {"step", formatted("{}", engine_.global_steps())}});
    });
  }
  agreed("save_state_dict", mine);
}

LayerFiles::Values LayerFiles::read(const LayerTensors& layer, size_t local_layer, const std::string& folder, bool strict,
                                    std::string& step) const {
  if (layer.tensors.empty()) return {};
  const std::string path = path_of(folder, local_layer);
  if (std::error_code failure; !std::filesystem::exists(path, failure))
    throw Error(ErrorCode::kNotFound, formatted("there is no file {}, of layer {} of the pipeline", path, layer.number),
                "give the folder that save_state_dict() wrote, with the files of all stages");
  std::map<std::string, std::string> metadata;
  Values values = load_safetensors(path, &metadata);
  if (const std::string layers = formatted("{}", module_.layer_count()); metadata["layers"] != layers)
    throw Error(ErrorCode::kMismatch,
                metadata["layers"].empty()
                    ? formatted("{} was not written by save_state_dict(): it does not say of how many layers the model was", path)
                    : formatted("{}: the model had {} layers, and this one has {}", path, printable(metadata["layers"]), layers),
                "load it into the same list of layers");
  if (step.empty()) step = metadata["step"];
  if (metadata["step"] != step)
    throw Error(ErrorCode::kMismatch,
                formatted("{} was saved at step {}, and the layers before it at step {}", path, printable(metadata["step"]),
                          printable(step)),
                kAreOneSave);
  Values fitting;
  for (const NamedTensor& one : layer.tensors) {
    const auto found = values.find(one.name);
    if (found != values.end()) {
      fitting.insert(values.extract(found));
    } else if (strict) {
      throw Error(ErrorCode::kMismatch, formatted("{} does not have '{}'", path, one.name),
                  "load it into the model that it is of, or pass strict = false");
    }
  }
  if (strict && !values.empty())
    throw Error(ErrorCode::kMismatch,
                formatted("{} has '{}', which layer {} does not have", path, printable(values.begin()->first), layer.number),
                "load it into the model that it is of, or pass strict = false");
  return fitting;
}

void LayerFiles::load(const std::string& folder, bool strict) {
  refuse_experts("load_state_dir");
  const std::vector<LayerTensors> own = layers();
  std::vector<Values> values(own.size());
  std::string step;
  const std::string read_by_all = outcome_of([&] {
    for (size_t l = 0; l < own.size(); ++l) values[l] = read(own[l], l, folder, strict, step);
  });
  set_values("load_state_dir", own, values, folder, step, read_by_all);
}

NamedTensors LayerFiles::state_dict() {
  refuse_experts("module_state_dict");
  const at::NoGradGuard no_grad;
  const std::vector<LayerTensors> own = layers();
  NamedTensors state;
  std::map<std::string, bool> known;
  for (size_t round = 0; round < rounds(); ++round) {
    const zero::GatheredParameters whole = whole_layer(own, round);
    if (round >= own.size()) continue;
    for (const NamedTensor& one : own[round].tensors)
      if (known.emplace(one.name, true).second)
        state.emplace_back(one.name,
                           one.tensor.detach().to(at::kCPU, one.tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true));
  }
  return state;
}

void LayerFiles::load_state_dict(const NamedTensors& state, bool strict) {
  refuse_experts("load_module_state_dict");
  const std::vector<LayerTensors> own = layers();
  std::vector<Values> values(own.size());
  const std::string checked = outcome_of([&] {
    Values given;
    for (const auto& [name, tensor] : state)
      if (!tensor.defined() || !given.emplace(name, tensor).second)
        throw Error(ErrorCode::kArgument, formatted("load_module_state_dict() was given '{}' {}", printable(name),
                                                    tensor.defined() ? "twice" : "undefined"));
    std::map<std::string, bool> known;
    for (size_t l = 0; l < own.size(); ++l)
      for (const NamedTensor& one : own[l].tensors) {
        known[one.name] = true;
        if (const auto found = given.find(one.name); found != given.end())
          values[l].emplace(one.name, found->second);
        else if (strict)
          throw Error(ErrorCode::kMismatch, formatted("load_module_state_dict() was not given '{}'", one.name),
                      "give the stage's whole module_state_dict(), or pass strict = false");
      }
    for (const auto& [name, tensor] : given)
      if (strict && !known.contains(name))
        throw Error(ErrorCode::kMismatch,
                    formatted("load_module_state_dict() was given '{}', which stage {} of the pipeline does not have",
                              printable(name), chunks_.front().index()),
                    "give the stage's own module_state_dict(), or pass strict = false");
  });
  set_values("load_module_state_dict", own, values, "the state dict", "", checked);
}

// Sets this stage's tensors to `values` [layers], either on all ranks or on none.
void LayerFiles::set_values(const char* call, const std::vector<LayerTensors>& own, const std::vector<Values>& values,
                            const std::string& where, const std::string& step, const std::string& checked) {
  const at::NoGradGuard no_grad;
  std::string mine = checked;
  if (!error_in(checked))
    mine = outcome([&] {
      std::vector<TensorNote> notes;
      const uint64_t tensor_rank = ranks_.mesh->shape().coordinate(ranks_.mesh->world().rank(), kTensorAxis);
      for (size_t l = 0; l < own.size(); ++l)
        for (const auto& [name, value] : values[l]) notes.push_back({tensor_rank, own[l].number, hash_of(value), name});
      return text_of(step, notes);
    });
  compare(call, agreed(call, mine));
  // The shapes of sharded parameters are known only while they are gathered.
  mine = outcome_of([] {});
  for (const bool writes : {false, true}) {
    for (size_t round = 0; round < rounds(); ++round) {
      std::vector<std::pair<const NamedTensor*, at::Tensor>> chosen;
      std::vector<at::Tensor> parameters;
      if (round < own.size())
        for (const NamedTensor& one : own[round].tensors)
          if (const auto found = values[round].find(one.name); found != values[round].end()) {
            chosen.emplace_back(&one, found->second);
            if (one.is_parameter) parameters.push_back(one.tensor);
          }
      zero::GatheredParameters::Options options;
      if (writes) options.write_from = 0;
      zero::GatheredParameters whole(engine_, std::move(parameters), options);
      if (!writes && !error_in(mine))
        mine = outcome_of([&] {
          for (const auto& [one, value] : chosen) check_fits(where, one->name, value, one->tensor, one->tensor.sizes().vec());
        });
      for (const auto& [one, value] : chosen)
        if (at::Tensor tensor = one->tensor; writes && (!one->is_parameter || ranks_.comm->rank() == 0)) tensor.copy_(value);
      whole.publish();
    }
    if (!writes) agreed(call, mine);
  }
}

}  // namespace gannet::pipeline
