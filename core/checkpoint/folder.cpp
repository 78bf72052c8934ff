#include "checkpoint/folder.h"

#include <fcntl.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <regex>
#include <utility>

#include "base/format.h"
#include "checkpoint/catalog.h"
#include "files/io.h"

namespace gannet::checkpoint {
namespace {

namespace fs = std::filesystem;

// Only warns about an error, because a failure to clean up is not a failure to save.
void remove_tree(const std::string& path) noexcept {
  std::error_code code;
  fs::remove_all(path, code);
  if (code) log_warning(formatted("cannot remove {}: {}", path, code.message()));
}

}  // namespace

Folder::Folder(std::string path) : path_(std::move(path)) {
  std::error_code code;
  fs::create_directories(path_, code);
  if (code || !files::kind_of(path_).is_folder) {
    const files::PathKind kind = files::kind_of(path_);
    if (kind.exists && !kind.is_folder)
      throw Error(ErrorCode::kIo, formatted("checkpoints cannot be saved into {}: it is a file, not a folder", path_));
    throw Error(ErrorCode::kIo, formatted("cannot make the folder {}: {}", path_, code.message()),
                "choose a folder that this user may write to");
  }
  lock_ = std::make_unique<FolderLock>(path_);
  clear_stale();
  for (const FoundCheckpoint& found : scan(path_)) {
    next_sequence_ = std::max(next_sequence_, found.sequence + 1);
    if (!found.problem) others_.insert(found.tag);
  }
}

void Folder::tell_of_others() {
  if (others_.empty() || std::exchange(told_, true)) return;
  const std::string latest = read_latest(path_).tag;
  log_warning(
      formatted("{} holds {} of a run that this one did not resume from{}: they stay beside this run's, but `latest` will name "
                "this run's, and one of a tag that both use is replaced. Load it first to resume it, or save elsewhere",
                path_, others_.size() == 1 ? "a checkpoint" : formatted("{} checkpoints", others_.size()),
                latest.empty() ? "" : formatted(" (`latest` is '{}')", latest)));
}

// This job holds the lock, so the job that made the temporary folders is dead.
void Folder::clear_stale() {
  static const std::regex kStaged(R"(\.(.+)\.tmp-\d+-\d+)"), kReplaced(R"(\.(.+)\.old-\d+-\d+)");
  std::smatch parts;
  for (const std::string& name : files::names_in(path_)) {
    const std::string entry = formatted("{}/{}", path_, name);
    if (std::regex_match(name, kStaged)) {
      remove_tree(entry);
    } else if (std::regex_match(name, parts, kReplaced)) {
      const std::string tag = formatted("{}/{}", path_, parts[1].str());
      if (files::kind_of(tag).exists)
        remove_tree(entry);
      else
        files::rename_file(entry, tag);
    }
  }
}

std::string Folder::temporary(const std::string& name) {
  return formatted("{}/.{}.tmp-{}-{}", path_, name, ::getpid(), ++count_);
}

std::string Folder::stage(const std::string& tag, uint64_t bytes) {
  const std::string target = formatted("{}/{}", path_, tag);
  const files::PathKind kind = files::kind_of(target);
  if (kind.exists && !kind.is_folder)
    throw Error(ErrorCode::kArgument, formatted("{} is a file: a checkpoint of that tag cannot be saved", target),
                "choose another tag or remove it");
  if (kind.exists && !files::kind_of(formatted("{}/{}", target, kManifestName)).exists && !files::names_in(target).empty())
    throw Error(ErrorCode::kArgument,
                formatted("{} is a folder that is not a checkpoint of Gannet, and would be replaced", target),
                "choose another tag or folder, or remove it");
  const uint64_t free = free_bytes(path_);
  if (free < bytes)
    throw Error(
        ErrorCode::kIo,
        formatted("checkpoint '{}' does not fit: it takes {}, in {} are {} free", tag, size_text(bytes), path_, size_text(free)),
        "make room or choose a folder on another disk; nothing was written");
  const std::string staging = temporary(tag);
  std::error_code code;
  fs::create_directory(staging, code);
  if (code) files::io_failed("make the folder", staging, code.value());
  return staging;
}

void Folder::discard(const std::string& staging) noexcept { remove_tree(staging); }

void Folder::commit(const std::string& staging, const Manifest& manifest) {
  // The manifest is the last file. It and its folder's entries are synced before the rename
  // publishes them under the tag. The rename is synced when commit() returns.
  files::write_synced(formatted("{}/{}", staging, kManifestName), format_manifest(manifest));
  files::sync_folder(staging);
  replace(staging, manifest.tag);
  files::sync_folder(path_);
  next_sequence_ = manifest.sequence + 1;
}

void Folder::replace(const std::string& staging, const std::string& tag) {
  const std::string target = formatted("{}/{}", path_, tag);
  if (!files::kind_of(target).exists) return files::rename_file(staging, target);
  // Exchanges both names atomically. The old checkpoint is then in the staging folder, as stale
  // data.
  if (::renameat2(AT_FDCWD, staging.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
      files::io_failed(formatted("exchange {} for", staging), target, errno);
    const std::string old = formatted("{}/.{}.old-{}-{}", path_, tag, ::getpid(), ++count_);
    files::rename_file(target, old);  // until the next line, the old checkpoint is found under this name
    files::rename_file(staging, target);
    files::sync_folder(path_);
    return remove_tree(old);
  }
  files::sync_folder(path_);
  remove_tree(staging);
}

void Folder::set_latest(const std::string& tag) {
  const std::string staged = temporary(kLatestName);
  try {
    files::write_synced(staged, format_latest(tag));
    files::rename_file(staged, formatted("{}/{}", path_, kLatestName));
  } catch (const Error& error) {
    remove_tree(staged);
    if (!files::kind_of(formatted("{}/{}/{}", path_, tag, kManifestName)).exists)
      throw;  // the folder is gone, including the checkpoint
    throw Error(
        error.code(),
        formatted("checkpoint '{}' is written and complete, but `latest` could not be made to name it: {}", tag, error.message()),
        error.next_step());
  }
  files::sync_folder(path_);
}

void Folder::retain(int64_t keep, const std::string& tag) {
  if (keep <= 0) return;
  const std::string latest = read_latest(path_).tag;
  int64_t complete = 0;
  for (const FoundCheckpoint& found : scan(path_)) {  // newest first; broken ones stay as evidence
    if (found.problem || others_.contains(found.tag) || ++complete <= keep || found.tag == tag || found.tag == latest) continue;
    const std::string going = temporary(found.tag);
    if (::rename(found.path.c_str(), going.c_str()) == 0)
      remove_tree(going);  // the rename makes the removal of the tag atomic
    else
      log_warning(formatted("cannot remove the old checkpoint {}: {}", found.path, std::generic_category().message(errno)));
  }
}

}  // namespace gannet::checkpoint
