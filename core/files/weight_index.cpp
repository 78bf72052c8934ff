#include "files/weight_index.h"

#include <gannet/error.h>

#include "base/format.h"
#include "config/parse.h"
#include "files/io.h"

namespace gannet::files {
namespace {

constexpr uint64_t kMaxIndexBytes = 64 << 20;

}  // namespace

std::map<std::string, std::vector<std::string>> files_of_index(const std::string& path) {
  const config::Tree tree = config::parse_text(read_file(path, kMaxIndexBytes), path);
  const Value* map = tree.root.find("weight_map");
  if (!map || !map->is_dict())
    throw Error(ErrorCode::kCorrupt, formatted("{} has no \"weight_map\"", path), "it should map each tensor's name to its file");
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& [name, file] : map->as_dict().entries()) {
    if (!file.is_string() || file.as_string().empty() || file.as_string().find('/') != std::string::npos)
      throw Error(ErrorCode::kCorrupt,
                  formatted("{}: the file of '{}' is {}, not a name of a file in the same folder", path, name, file.to_json()),
                  "fetch the folder again");
    files[file.as_string()].push_back(name);
  }
  if (files.empty()) throw Error(ErrorCode::kCorrupt, formatted("{} lists no tensor", path), "fetch the folder again");
  return files;
}

}  // namespace gannet::files
