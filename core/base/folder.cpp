#include <gannet/error.h>
#include <gannet/folder.h>

#include <filesystem>

#include "base/format.h"
#include "base/machine_limits.h"
#include "base/text.h"

namespace gannet {

void check_folder(const std::string& folder, uint64_t bytes) {
  if (folder.empty()) throw Error(ErrorCode::kArgument, "check_folder was given an empty path", "name a folder");
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed && !std::filesystem::is_directory(folder))
    throw Error(ErrorCode::kIo, formatted("the folder '{}' cannot be made: {}", folder, failed.message()),
                "correct the path, or make a folder there that this user may write to");
  const FolderState state = look_at(folder);
  if (!state.not_writable.empty())
    throw Error(ErrorCode::kIo, formatted("no file can be written in the folder '{}': {}", folder, state.not_writable),
                "name another folder, or make room and rights there");
  if (state.free_bytes < bytes)
    throw Error(ErrorCode::kIo,
                formatted("the disk of the folder '{}' has {} free, and {} are needed", folder, size_text(state.free_bytes),
                          size_text(bytes)),
                "make room, or name a folder on another disk");
}

}  // namespace gannet
