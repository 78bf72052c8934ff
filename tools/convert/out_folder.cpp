#include "convert/out_folder.h"

#include <gannet/error.h>

#include <filesystem>

#include "base/format.h"
#include "files/io.h"

namespace gannet::convert {

void refuse_existing(const std::string& out, const std::string& name, const std::string& next) {
  throw Error(ErrorCode::kArgument, formatted("{} has a '{}' already", out, name), next);
}

void check_out_folder(const std::string& out, const std::string& name, const std::string& next) {
  if (out.empty()) throw Error(ErrorCode::kArgument, "the name of the folder to write into is empty", "name a folder");
  std::error_code failure;
  for (std::filesystem::path path = out; !path.empty(); path = path.parent_path()) {
    const files::PathKind kind = files::kind_of(path.string());
    if (kind.exists && !kind.is_folder)
      throw Error(ErrorCode::kArgument, formatted("cannot make the folder {}: {} is a file", out, path.string()),
                  "name another folder");
    if (!kind.exists && std::filesystem::is_symlink(path, failure))
      throw Error(ErrorCode::kArgument, formatted("cannot make the folder {}: {} is a dangling link", out, path.string()),
                  "remove the link, or make the folder that it names");
    if (kind.exists || path == path.parent_path()) break;
  }
  if (files::kind_of(formatted("{}/{}", out, name)).exists) refuse_existing(out, name, next);
}

}  // namespace gannet::convert
