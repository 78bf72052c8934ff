#include "convert/exported_model.h"

#include <gannet/error.h>
#include <gannet/model_config.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/format.h"
#include "files/io.h"

namespace gannet::convert {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPythonConfig = "python_config.json";

ExportedModelFiles files_of(const ModelConfig& config, const std::string& folder) {
  ExportedModelFiles found;
  const Value* const ties = config.find("tied");
  for (const Value& one : ties && ties->is_list() ? ties->as_list() : List()) {
    if (!one.is_list() || one.as_list().size() != 2 || !one.as_list()[0].is_string() || !one.as_list()[1].is_string())
      throw Error(ErrorCode::kCorrupt, formatted("{}: an element of 'tied' is not a pair of names", config.where()),
                  "copy the file again from the folder of the export");
    found.tied.emplace_back(one.as_list()[0].as_string(), one.as_list()[1].as_string());
  }
  if (const std::string path = formatted("{}/{}", folder, kPythonConfig); files::kind_of(path).is_file)
    found.python_config = path;
  return found;
}

}  // namespace

std::optional<ExportedModelFiles> exported_model_files(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    if (!files::kind_of(formatted("{}/config.json", folder)).is_file) continue;
    const ModelConfig config = ModelConfig::read(folder);
    const std::string type = config.text("model_type", "");
    if (type == "gannet_exported" || type == "gannet_torch_script") return files_of(config, folder);
  }
  return std::nullopt;
}

void add_every_name(const ExportedModelFiles& model, const checkpoint::ExportFormat& format, checkpoint::ExportSource& source) {
  const std::vector<checkpoint::ExportSource::Tensor> stored = source.tensors;
  for (const auto& [other, own] : model.tied) {
    const auto found = std::find_if(stored.begin(), stored.end(), [&, &own = own](const auto& one) { return one.name == own; });
    if (found == stored.end()) continue;
    if (format.has_aliases)
      source.aliases.emplace_back(other, own);
    else
      source.tensors.push_back({other, found->info});
  }
}

std::string copy_python_config(const ExportedModelFiles& model, const std::string& folder) {
  const std::string path = formatted("{}/config.json", folder);
  if (model.python_config.empty()) return "";
  if (files::kind_of(path).exists) return "left out: config.json, which is there already";
  std::error_code error;
  fs::copy_file(model.python_config, path, error);
  if (error)
    throw Error(ErrorCode::kIo, formatted("cannot copy {} to {}: {}", model.python_config, path, error.message()),
                "the weights are complete; copy it by hand");
  return "config.json";
}

}  // namespace gannet::convert
