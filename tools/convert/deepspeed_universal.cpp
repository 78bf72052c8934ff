// A universal checkpoint: every parameter has a folder zero/<name>/ with fp32.pt, a file for each
// state, and step.pt. Files of stages 1 and 2 hold {"param": the whole tensor, ...}; those of stage
// 3 hold only the flat tensor, whose shape and step are in other files.
#include <algorithm>
#include <map>
#include <set>

#include "base/format.h"
#include "convert/deepspeed_state.h"
#include "files/io.h"

namespace gannet::convert {
namespace {

files::Node open_node(const std::string& path) { return files::Node(std::make_shared<files::PtFile>(files::PtFile::open(path))); }

struct ShapeEntry {
  std::vector<int64_t> sizes;
  int64_t buffer = -1;  // the flat buffer that the parameter is in: a group or, at stage 3, a sub-group
};

// The parameters of param_shapes in its order, then those that only have a folder: all without param_shapes, and those of a
// pipeline's later stages.
std::vector<std::pair<std::string, ShapeEntry>> listed(const DeepSpeedFolder& folder) {
  std::vector<std::pair<std::string, ShapeEntry>> all;
  std::set<std::string> known;
  const auto shapes = folder.models[0].find("param_shapes");
  int64_t buffer = 0;
  if (shapes)
    for (const files::Node& group : shapes->items()) {
      for (const auto& [name, shape] : group.entries())
        if (name.find('/') != std::string::npos)
          shape.refuse("a parameter's name without '/'");
        else if (known.insert(name).second)
          all.push_back({name, {shape.shape(), buffer}});
      ++buffer;
    }
  for (const std::string& name : files::names_in(folder.universal))
    if (files::kind_of(formatted("{}/{}/fp32.pt", folder.universal, name)).exists && known.insert(name).second) {
      if (shapes && !folder.is_universal_of_pipeline)
        throw Error(ErrorCode::kMismatch,
                    formatted("{}/{}: param_shapes of {} has no such parameter", folder.universal, name,
                              files::last_name(folder.models[0].file()->path())),
                    "remove it if it is of another save, or copy the whole folder again");
      all.push_back({name, {}});
    }
  return all;
}

// The tensor of a file, and its shape: that of the file or, if it is flat or a scalar written as [1], `listed`, which is
// that of param_shapes.
files::Node tensor_in(const files::Node& file, const std::vector<int64_t>& listed, bool is_scalar, std::vector<int64_t>& sizes) {
  const files::Node tensor = file.is_tensor() ? file : file.at("param");
  floating(tensor);
  sizes = file.is_tensor() || is_scalar ? listed : tensor.tensor().sizes;
  if (tensor.tensor().numel() != numel_of(tensor, sizes))
    throw Error(ErrorCode::kMismatch,
                formatted("{}: it has {} elements, and its shape in param_shapes {}", file.file()->path(),
                          tensor.tensor().numel(), numel_of(tensor, sizes)),
                "are the files of one save, and whole?");
  return tensor;
}

void add_states(const std::string& path, bool is_scalar, ImportedTensor& tensor, std::set<double>& steps) {
  for (const std::string& file : files::names_in(path)) {
    if (!file.ends_with(".pt") || file == "fp32.pt") continue;
    const files::Node content = open_node(formatted("{}/{}", path, file));
    if (file == "step.pt") {
      steps.insert(content.number());
      continue;
    }
    std::vector<int64_t> sizes;
    tensor.states.emplace(file.substr(0, file.size() - 3), files::whole(tensor_in(content, tensor.shape, is_scalar, sizes)));
    if (sizes != tensor.shape)
      throw Error(ErrorCode::kMismatch, formatted("{}/{} has another shape than its fp32.pt", path, file),
                  "are the files of one save, and whole?");
  }
}

const char* const kCopyAgain = "copy the whole folder again, or take the weights alone (--weights-only)";

// A state that only some parameters have, or one of Adam's two without the other: files are missing, and those states would
// begin with zeros.
void require_equal_states(const DeepSpeedFolder& folder, const DeepSpeedState& state) {
  std::set<std::string> all;
  for (const ImportedTensor& tensor : state.trained)
    for (const auto& [name, pieces] : tensor.states) all.insert(name);
  for (const ImportedTensor& tensor : state.trained)
    for (const std::string& name : all)
      if (!tensor.states.contains(name))
        throw Error(ErrorCode::kMismatch,
                    formatted("{}/{} has no {}.pt, and other parameters have", folder.universal, tensor.name, name), kCopyAgain);
  // Lion has exp_avg alone, and no eps.
  const bool needs_square = all == std::set<std::string>{"exp_avg"} && !state.groups.empty() && state.groups[0].find("eps");
  if (needs_square || (all.contains("exp_avg_sq") && !all.contains("exp_avg")))
    throw Error(ErrorCode::kMismatch,
                formatted("{}: no parameter has {}.pt, and all have {}.pt", folder.universal,
                          needs_square ? "exp_avg_sq" : "exp_avg", needs_square ? "exp_avg" : "exp_avg_sq"),
                kCopyAgain);
}

}  // namespace

void add_universal(const DeepSpeedFolder& folder, bool weights_only, DeepSpeedState& state) {
  const files::Node common = open_node(formatted("{}/optimizer_state.pt", folder.universal));
  const auto stage = common.find("zero_stage");
  state.stage = stage ? stage->integer() : 1;  // BF16_Optimizer is stage 1 and does not store it
  if (const auto scaler = common.find("loss_scaler")) state.scaler = {*scaler};
  const auto stage3 = common.find("optimizer_state_dict");
  if (const auto groups = common.find("param_groups"))
    state.groups = groups->items();
  else if (stage3)
    state.groups = stage3->at("param_groups").items();
  for (const auto& [name, shape] : listed(folder)) {
    const std::string path = formatted("{}/{}", folder.universal, name);
    if (!files::kind_of(formatted("{}/fp32.pt", path)).exists)
      throw Error(ErrorCode::kNotFound,
                  formatted("{}/fp32.pt is missing: param_shapes of {} has the parameter {}", path,
                            files::last_name(folder.models[0].file()->path()), name),
                  "copy the whole folder again");
    const files::Node file = open_node(formatted("{}/fp32.pt", path));
    ImportedTensor tensor{name, {}, c10::kFloat, {}, {}, group_with(state.groups, shape.buffer)};
    const bool is_scalar = shape.buffer >= 0 && shape.sizes.empty();
    const files::Node master = tensor_in(file, shape.sizes, is_scalar, tensor.shape);
    tensor.dtype = master_dtype(master.tensor().dtype);
    tensor.pieces = files::whole(master);
    if (!weights_only) add_states(path, is_scalar, tensor, state.steps);
    state.has_states |= !tensor.states.empty();
    state.trained.push_back(std::move(tensor));
  }
  require_equal_states(folder, state);
  if (!weights_only && !state.has_states)
    state.notes.push_back("optimizer states: no parameter's folder has any; they begin at zero");
  if (weights_only || !stage3 || !state.steps.empty()) return;
  for (const auto& [index, of_buffer] : stage3->at("state").entries())
    if (const auto step = of_buffer.find("step")) state.steps.insert(step->number());
}

}  // namespace gannet::convert
