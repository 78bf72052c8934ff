// load_weights and save_weights: a plain module, without an engine.
#include <gannet/checkpoint.h>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "exchange/index.h"
#include "exchange/state_dict.h"
#include "tensor/vector_math.h"

#include <gannet/error.h>
#include <gannet/log.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_set>

namespace gannet {
namespace {

namespace fs = std::filesystem;

// What tied tensors share, whether or not their bytes are here.
const void* identity(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

// Parameters and buffers by name, tied ones under each of their names.
NamedTensors tensors_of(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& entry : module.named_parameters()) tensors.emplace_back(entry.key(), entry.value().detach());
  for (const auto& entry : module.named_buffers())
    if (entry.value().defined()) tensors.emplace_back(entry.key(), entry.value().detach());
  return tensors;
}

// Hugging Face's folder: one file, or shards that an index lists.
std::map<std::string, at::Tensor> read_folder(const fs::path& folder) {
  if (fs::exists(folder / "model.safetensors")) return load_safetensors((folder / "model.safetensors").string());
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [file, names] : exchange::files_of_index((folder / "model.safetensors.index.json").string()))
    tensors.merge(load_safetensors((folder / file).string()));
  return tensors;
}

std::map<std::string, at::Tensor> read_pt(const std::string& path) {
  settle_vector_math();
  const exchange::StateDict weights = exchange::open_state_dict(path);
  log_info("weights of " + weights.taken_from);
  return exchange::read_state_dict(weights);
}

std::map<std::string, at::Tensor> read_checkpoint(const fs::path& folder, const std::string& tag) {
  settle_vector_math();
  const checkpoint::Opened found = checkpoint::open(folder.string(), {tag, {}});
  std::map<std::string, at::Tensor> tensors;
  std::vector<checkpoint::Target> targets;
  for (const auto& saved : found.tensors()) {
    for (const std::string prefix : {"parameter/", "buffer/0/"}) {
      if (!saved.name.starts_with(prefix)) continue;
      at::Tensor tensor = at::empty(saved.shape, saved.dtype);
      if (tensor.numel() > 0) targets.push_back({saved.name, 0, tensor.view({-1})});
      tensors.emplace(saved.name.substr(prefix.size()), std::move(tensor));
    }
  }
  found.read(targets);
  return tensors;
}

std::map<std::string, at::Tensor> read_any(const std::string& path, const std::string& tag) {
  if (!fs::exists(path)) throw Error(ErrorCode::kNotFound, "there is no '" + path + "' to load weights from", "give a checkpoint folder, a file of safetensors or of torch.save, or a folder of them");
  if (!fs::is_directory(path)) return exchange::is_pt_name(path) ? read_pt(path) : load_safetensors(path);
  if (fs::exists(fs::path(path) / "model.safetensors") || fs::exists(fs::path(path) / "model.safetensors.index.json")) return read_folder(path);
  if (exchange::is_pt_folder(path)) return read_pt(path);
  return read_checkpoint(path, tag);
}

}  // namespace

int64_t load_weights(torch::nn::Module& module, const std::string& path, const WeightsOptions& options) {
  const auto source = read_any(path, options.tag);
  const NamedTensors wanted = tensors_of(module);
  // A tied tensor may have been saved under one of its names only.
  std::unordered_set<const void*> filled;
  for (const auto& [name, tensor] : wanted)
    if (source.count(name)) filled.insert(identity(tensor));
  std::vector<std::string> differences;
  std::set<std::string> known;
  for (const auto& [name, tensor] : wanted) {
    known.insert(name);
    const auto found = source.find(name);
    if (found == source.end()) {
      if (options.strict && !filled.count(identity(tensor))) differences.push_back("missing in it: " + name);
    } else if (found->second.sizes() != tensor.sizes()) {
      differences.push_back("shape of " + name + ": " + shape_text(found->second.sizes()) + " there, " + shape_text(tensor.sizes()) + " in the module");
    }
  }
  for (const auto& [name, tensor] : source)
    if (options.strict && !known.count(name)) differences.push_back("unexpected in it: " + name);
  if (!differences.empty()) {
    std::string text;
    for (size_t i = 0; i < std::min<size_t>(differences.size(), 5); ++i) text += "\n  " + differences[i];
    if (differences.size() > 5) text += "\n  and " + std::to_string(differences.size() - 5) + " more";
    throw Error(ErrorCode::kMismatch, "the weights of '" + path + "' do not fit the module:" + text, "build the module that was saved, or pass strict = false where only names are missing");
  }
  at::NoGradGuard no_grad;
  int64_t count = 0;
  for (auto [name, tensor] : wanted) {
    const auto found = source.find(name);
    if (found == source.end()) continue;
    tensor.copy_(found->second);
    ++count;
  }
  return count;
}

void save_weights(const torch::nn::Module& module, const std::string& path) { save_safetensors(path, tensors_of(module), {{"format", "pt"}}); }

}  // namespace gannet
