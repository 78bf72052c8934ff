#include "convert/staged_folder.h"

#include <gannet/error.h>
#include <unistd.h>

#include <filesystem>

#include "base/format.h"
#include "files/io.h"

namespace gannet::convert {

StagedFolder::StagedFolder(std::string out, std::string name)
    : out_(std::move(out)), name_(std::move(name)), staged_(formatted("{}/.{}.tmp-{}", out_, name_, ::getpid())) {
  if (files::kind_of(formatted("{}/{}", out_, name_)).exists)
    throw Error(ErrorCode::kArgument, formatted("{} has a '{}' already", out_, name_),
                "name a folder that has none, or remove it");
  is_new_ = !files::kind_of(out_).exists;
  std::error_code failure;
  std::filesystem::create_directories(staged_, failure);
  if (failure) files::io_failed("make the folder", staged_, failure.value());
}

StagedFolder::~StagedFolder() {
  if (is_committed_) return;
  std::error_code failure;
  std::filesystem::remove_all(staged_, failure);
  if (is_new_) std::filesystem::remove(out_, failure);  // a folder that is not empty remains
}

void StagedFolder::commit(const std::string& latest) {
  files::sync_folder(staged_);
  files::rename_file(staged_, formatted("{}/{}", out_, name_));
  is_committed_ = true;
  files::replace_file(formatted("{}/{}", out_, latest), [&](const std::string& beside) { files::write_synced(beside, name_); });
  files::sync_folder(out_);
}

}  // namespace gannet::convert
