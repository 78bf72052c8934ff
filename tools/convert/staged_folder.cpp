#include "convert/staged_folder.h"

#include <gannet/error.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>

#include "base/format.h"
#include "checkpoint/checkpoint.h"
#include "convert/out_folder.h"
#include "files/io.h"

namespace gannet::convert {
namespace {

// Process ids do not tell processes of two containers apart, hence a random number.
std::string make_own_folder(const std::string& prefix) {
  std::random_device random;
  for (;;) {
    const std::string path = formatted("{}{:08x}", prefix, random());
    if (::mkdir(path.c_str(), 0777) == 0) return path;
    if (errno != EEXIST) files::io_failed("make the folder", path, errno);
  }
}

}  // namespace

StagedFolder::StagedFolder(std::string out, std::string name) : out_(std::move(out)), name_(std::move(name)) {
  check_out_folder(out_, name_);
  if (checkpoint::holds_checkpoints(out_))
    throw Error(ErrorCode::kArgument,
                formatted("{} holds checkpoints of Gannet, and DeepSpeed's cannot share its 'latest'", out_),
                "name another folder");
  is_new_ = !files::kind_of(out_).exists;
  std::error_code failure;
  std::filesystem::create_directories(out_, failure);
  if (failure) files::io_failed("make the folder", out_, failure.value());
  for (const std::string& entry : files::names_in(out_))
    if (entry.starts_with('.') && entry.find(".tmp-") != entry.npos) others_.push_back(formatted("{}/{}", out_, entry));
  staged_ = make_own_folder(formatted("{}/.{}.tmp-", out_, name_));
}

StagedFolder::~StagedFolder() {
  if (is_committed_) return;
  std::error_code failure;
  std::filesystem::remove_all(staged_, failure);
  if (is_new_) std::filesystem::remove(out_, failure);  // a folder that is not empty remains
}

void StagedFolder::commit(const std::string& latest) {
  const std::string path = formatted("{}/{}", out_, name_);
  files::write_synced(formatted("{}/{}", staged_, latest), name_);  // here no other process writes
  files::sync_folder(staged_);
  if (std::rename(staged_.c_str(), path.c_str()) != 0) {
    if (errno == ENOTEMPTY || errno == EEXIST) refuse_existing(out_, name_);
    files::io_failed(formatted("rename {} to", staged_), path, errno);
  }
  is_committed_ = true;
  files::rename_file(formatted("{}/{}", path, latest), formatted("{}/{}", out_, latest));
  files::sync_folder(out_);
}

}  // namespace gannet::convert
