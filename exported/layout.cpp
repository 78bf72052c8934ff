#include "layout.h"

#include <gannet/error.h>
#include <gannet/pipe.h>

#include <algorithm>
#include <set>
#include <utility>

#include "batch.h"
#include "dtype_names.h"
#include "program.h"
#include "run.h"

namespace gannet {
namespace exported {
namespace {

bool is_inside(const std::string& name, const std::string& module) { return module.empty() || name.starts_with(module + "."); }
std::string module_of(const std::string& tensor) {
  const size_t dot = tensor.rfind('.');
  return dot == std::string::npos ? std::string() : tensor.substr(0, dot);
}

// The parameters and buffers that the fixed steps of each layer use. Those of the loss count for
// the last layer.
std::vector<std::set<std::string>> tensors_by_layer(const Program& program, const Flow& flow, const Cuts& cuts) {
  std::vector<std::set<std::string>> all(cuts.layers.size());
  for (size_t s = 0, layer = 0; s < flow.steps; ++s) {
    while (layer + 1 < cuts.layers.size() && cuts.layers[layer + 1].step <= s) ++layer;
    for (const size_t slot : flow.reads[s])
      if (slot < flow.inputs && flow.is_fixed_slot[slot]) all[layer].insert(program.file().placeholders[slot].target);
  }
  return all;
}

// Keeps the layers with these names and merges each of the others into the layer before it.
void keep(Cuts& cuts, const std::set<std::string>& names) {
  const std::string first = cuts.layers.front().name;
  std::erase_if(cuts.layers, [&](const Cuts::Begin& one) { return one.step != 0 && !names.contains(one.name); });
}

void add_missing(std::vector<std::string>& all, const std::vector<std::string>& more) {
  for (const std::string& one : more)
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
}

}  // namespace

Layout::Layout(const ExportedModule& module, bool for_pipeline) : module_(module) {
  for (const auto& program : module.config().programs) {
    flows_.emplace_back(*program);
    cuts_.push_back(cuts_of(*program, flows_.back()));
  }
  choose(for_pipeline);
  for (size_t i = 0; i < cuts_.size(); ++i) {
    const NeededInputs needed = inputs_needed(*module.config().programs[i], flows_[i], cuts_[i]);
    add_missing(needed_.layers, needed.layers);
    add_missing(needed_.loss, needed.loss);
  }
  for (size_t i = 0; i < cuts_.size(); ++i)
    programs_.push_back(segments_of(*module.config().programs[i], flows_[i], cuts_[i], needed_));
  make_layers();
}

// The layers that all programs have, in the order of the first program.
void Layout::choose(bool for_pipeline) {
  if (for_pipeline)
    for (size_t i = 0; i < cuts_.size(); ++i) {
      const auto tensors = tensors_by_layer(*module_.config().programs[i], flows_[i], cuts_[i]);
      std::set<std::string> joined;
      for (const auto& [name, owner] : module_.owners_) {
        const std::string module = module_of(name);
        if (owner && owner->children().empty()) continue;
        std::vector<size_t> users;
        for (size_t layer = 0; layer < tensors.size(); ++layer)
          if (std::any_of(tensors[layer].begin(), tensors[layer].end(),
                          [&](const std::string& one) { return is_inside(one, module); }))
            users.push_back(layer);
        if (users.empty()) continue;
        for (size_t layer = users.front() + 1; layer <= users.back(); ++layer) joined.insert(cuts_[i].layers[layer].name);
      }
      std::erase_if(cuts_[i].layers, [&](const Cuts::Begin& one) { return joined.contains(one.name); });
    }
  std::vector<std::string> common;
  for (const Cuts::Begin& one : cuts_.front().layers) common.push_back(one.name);
  for (const Cuts& other : cuts_) {
    std::vector<std::string> both;  // in the order of both lists
    auto from = other.layers.begin();
    for (const std::string& name : common) {
      const auto found = std::find_if(from, other.layers.end(), [&](const Cuts::Begin& one) { return one.name == name; });
      if (found == other.layers.end()) continue;
      both.push_back(name);
      from = found + 1;
    }
    common = std::move(both);
  }
  for (Cuts& cuts : cuts_) {
    keep(cuts, {common.begin(), common.end()});
    cuts.layers.front().name = cuts_.front().layers.front().name;
  }
}

void Layout::make_layers() {
  std::vector<std::set<std::string>> tensors(programs_.front().layers.size());
  for (const Segments& one : programs_)
    for (size_t layer = 0; layer < tensors.size(); ++layer)
      tensors[layer].insert(one.layers[layer].tensors.begin(), one.layers[layer].tensors.end());
  for (size_t layer = 0; layer < tensors.size(); ++layer) {
    Layer::Modules modules;
    at::Tensor leading = module_.leading_;
    bool is_own = false;
    for (const auto* const list : {&module_.config_.parameters, &module_.config_.buffers})
      for (const ExportedTensor& one : *list) {
        if (!tensors[layer].contains(one.name)) continue;
        const at::Tensor& tensor = module_.tensors_.at(one.name);
        if (list == &module_.config_.parameters && !std::exchange(is_own, is_own || tensor.is_floating_point()) &&
            tensor.is_floating_point())
          leading = tensor;
        const auto& owner = module_.owners_.at(one.name);
        if (owner && std::find(modules.begin(), modules.end(), owner) == modules.end()) modules.push_back(owner);
      }
    leading_.push_back(leading);
    layers_.emplace_back(programs_.front().layers[layer].name, std::move(modules), Layer::Takes{},
                         [this, layer](const Wire& wire) { return run_part(layer, /*is_loss=*/false, wire); });
  }
}

Wire Layout::run_part(size_t layer, bool is_loss, const Wire& wire) const {
  const at::ScalarType dtype = leading_[layer].scalar_type();
  const size_t chosen = module_.chosen_program(dtype);
  const Program& program = *module_.config().programs[chosen];
  const Segment& segment = is_loss ? programs_[chosen].loss : programs_[chosen].layers[layer];
  const c10::Device device = leading_[layer].device();
  const auto& constants = program.constants_on(device);
  std::vector<at::Tensor> given;
  for (const size_t slot : segment.given) {
    const auto& placeholders = program.file().placeholders;
    if (placeholders[slot].kind != Placeholder::Kind::kConstant) {
      given.push_back(module_.given_[chosen][slot]);
      continue;
    }
    const auto before = std::count_if(placeholders.begin(), placeholders.begin() + static_cast<std::ptrdiff_t>(slot),
                                      [](const Placeholder& one) { return one.kind == Placeholder::Kind::kConstant; });
    given.push_back(constants[static_cast<size_t>(before)]);
  }
  return run_segment(program, segment, wire, given, device);
}

at::Tensor Layout::loss(const Wire& wire) const {
  const size_t last = layers_.size() - 1;
  const Wire results = run_part(last, /*is_loss=*/true, wire);
  require_loss(*module_.config().programs[module_.chosen_program(leading_[last].scalar_type())], results.at(0));
  return results[0];
}

at::Tensor Layout::run(const NamedBatch& batch) const {
  Wire wire;
  for (const std::string& name : needed_.layers) wire.push_back(batch.at(name));
  wire = detail::run_layers(layers_, std::move(wire));
  for (const std::string& name : needed_.loss) wire.push_back(batch.at(name));
  return loss(wire);
}

}  // namespace exported

const exported::Layout& ExportedModule::layout() const {
  const std::lock_guard lock(mutex_);
  if (!layout_) layout_ = std::make_shared<exported::Layout>(*this, /*for_pipeline=*/false);
  return *layout_;
}

const exported::Layout& ExportedModule::pipeline_layout() const {
  const std::lock_guard lock(mutex_);
  if (!pipeline_layout_) pipeline_layout_ = std::make_shared<exported::Layout>(*this, /*for_pipeline=*/true);
  return *pipeline_layout_;
}

std::vector<Layer> ExportedModule::layers() const { return layout().layers(); }

std::vector<Layer> ExportedModule::pipeline_layers() const {
  for (const auto& [name, owner] : owners_)
    if (!owner)
      throw Error(
          ErrorCode::kUnsupported,
          config_.folder + ": '" + name + "' is a parameter or buffer of the model itself, and a pipeline divides modules",
          "register it in a submodule of the Python model, and export it again");
  const auto& layers = pipeline_layout().layers();
  if (layers.size() == 1)
    throw Error(ErrorCode::kUnsupported,
                config_.folder + ": the graph has no place for a cut between its layers, and a pipeline needs one",
                "`gannet model cuts " + config_.folder + "` lists the places; train with ZeRO stage 3 in place of a pipeline");
  return layers;
}

at::Tensor ExportedModule::pipeline_loss(const Wire& outputs_and_labels) const {
  return pipeline_layout().loss(outputs_and_labels);
}

pipe::MicroBatch ExportedModule::micro_batch(const NamedBatch& batch) const {
  const exported::Layout& parts = pipeline_layout();
  // On a pipeline stage, the other stages' parameters have no dtype of their own.
  at::Tensor leading = leading_;
  for (size_t layer = 0; layer < parts.layers().size(); ++layer)
    if (parts.leading(layer).numel() > 0) leading = parts.leading(layer);
  const exported::GraphFile& file = config_.programs[chosen_program(leading.scalar_type())]->file();
  NamedBatch converted = batch;
  for (const exported::Input& input : file.inputs)
    if (const auto found = converted.find(input.name);
        found != converted.end() && found->second.defined() && found->second.is_floating_point())
      if (const auto dtype = exported::dtype_named(input.dtype); dtype && at::isFloatingType(*dtype))
        found->second = found->second.to(*dtype);
  c10::Device device = at::kCPU;
  for (const auto& [name, tensor] : converted)
    if (tensor.defined()) device = tensor.device();
  exported::require_batch(file, converted, device);
  pipe::MicroBatch made;
  for (const std::string& name : parts.inputs().layers) made.inputs.push_back(converted.at(name));
  for (const std::string& name : parts.inputs().loss) made.labels.push_back(converted.at(name));
  return made;
}

}  // namespace gannet
