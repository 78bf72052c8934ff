#include "train/folder.h"

#include <ATen/core/Tensor.h>
#include <gannet/error.h>
#include <gannet/safetensors.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include "base/format.h"

namespace gannet::train {

namespace fs = std::filesystem;

void copy_graphs(const std::string& model, const std::string& folder) {
  std::error_code error;
  if (fs::equivalent(model, folder, error)) return;
  for (const auto& entry : fs::directory_iterator(model)) {
    const std::string name = entry.path().filename();
    const bool is_graph = name.starts_with("graph.") && name.ends_with(".json");
    if (name != "config.json" && name != "constants.safetensors" && name != "python_config.json" && !is_graph) continue;
    fs::copy_file(entry.path(), fs::path(folder) / name, fs::copy_options::overwrite_existing, error);
    if (error) throw Error(ErrorCode::kIo, formatted("cannot copy {} to {}: {}", entry.path().string(), folder, error.message()));
  }
}

void write_torch_script_config(const std::string& folder, const std::vector<std::pair<std::string, std::string>>& tied) {
  std::string pairs;
  for (const auto& [other, own] : tied)  // Python's identifiers and numbers, with dots between: nothing to escape
    pairs += formatted("{}[\"{}\", \"{}\"]", pairs.empty() ? "" : ", ", other, own);
  const std::string path = formatted("{}/config.json", folder);
  std::ofstream file(path);
  file << formatted("{{\n \"model_type\": \"gannet_torch_script\",\n \"tied\": [{}]\n}}\n", pairs);
  if (!file.flush())
    throw Error(ErrorCode::kIo, formatted("cannot write {}", path), "check the disk and the folder's permissions");
}

void write_every_name(const std::string& folder, const std::vector<std::pair<std::string, std::string>>& tied) {
  const std::string path = formatted("{}/model.safetensors", folder);
  if (tied.empty()) return;
  std::map<std::string, std::string> metadata;
  std::map<std::string, at::Tensor> tensors = load_safetensors(path, &metadata);
  for (const auto& [other, own] : tied)
    if (const auto found = tensors.find(own); found != tensors.end()) tensors.emplace(other, found->second);
  save_safetensors(path, {tensors.begin(), tensors.end()}, metadata);
}

}  // namespace gannet::train
