#include "train/folder.h"

#include <gannet/error.h>

#include <filesystem>
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
    if (name != "config.json" && name != "constants.safetensors" && !is_graph) continue;
    fs::copy_file(entry.path(), fs::path(folder) / name, fs::copy_options::overwrite_existing, error);
    if (error) throw Error(ErrorCode::kIo, formatted("cannot copy {} to {}: {}", entry.path().string(), folder, error.message()));
  }
}

}  // namespace gannet::train
