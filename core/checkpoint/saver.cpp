#include <fcntl.h>
#include <gannet/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/format.h"
#include "checkpoint/agree.h"
#include "checkpoint/catalog.h"
#include "checkpoint/folder.h"
#include "checkpoint/plan.h"
#include "files/io.h"

namespace gannet::checkpoint {

struct Saver::State {
  std::string path;
  Ranks ranks;
  Neighbours neighbours = {};
  std::unique_ptr<Folder> folder = nullptr;  // set only on a keeper
};

namespace {

// A keeper's staging folder, removed unless its content was committed.
class StagingFolder {
 public:
  explicit StagingFolder(Folder* folder) : folder_(folder) {}
  ~StagingFolder() {
    if (folder_ && !path.empty()) folder_->discard(path);
  }
  void release() { path.clear(); }
  std::string path;

 private:
  Folder* folder_;
};

// Identifies a folder independently of its path; even ranks of one machine may be given different
// paths.
std::string folder_identity(const std::string& path, const std::string& machine) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  struct stat status{};
  if (code || ::stat(path.c_str(), &status) != 0)
    throw Error(ErrorCode::kIo, formatted("cannot make the folder {}: {}", path, code ? code.message() : std::strerror(errno)),
                "choose a folder that this user may write to");
  return formatted("{} {} {}", machine, status.st_dev, status.st_ino);
}

// The folder existed when it was locked. If it is missing now, it was removed, moved or unmounted.
// That is a machine fault, which a restart may fix, not a user error.
Json with_folder(const std::string& path, const std::function<Json()>& part) {
  try {
    return part();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    throw Error(ErrorCode::kIo,
                formatted("{}: {}, or a part of it, vanished while a checkpoint was being saved", error.message(), path),
                "was it removed or moved, or a file system unmounted?");
  }
}

std::string this_host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Describes a keeper's staging folder to the other ranks.
Json description_of(const StagingFolder& staging, const Manifest& manifest, const Folder& folder) {
  return Json{{"name", staging.path.substr(staging.path.rfind('/') + 1)},
              {"host", this_host()},
              {"saved_at", manifest.saved_at},
              {"sequence", folder.next_sequence()}};
}

// Throws if this rank is on a different machine from the keeper and does not see the folder that
// the keeper has just made.
void check_shared(const std::string& made, const std::string& path, uint32_t rank, const Json& keeper) {
  std::error_code code;
  const std::string host = this_host(), there = keeper.at("host").get<std::string>();
  if (host == there || std::filesystem::is_directory(made, code)) return;
  throw Error(
      ErrorCode::kConfig,
      formatted("rank {} on {} does not see what the rank on {} has just made in the checkpoint folder {}: the machines do "
                "not share it",
                rank, host, there, path),
      "save to a folder that all machines share, or set \"checkpoint\": {\"use_node_local_storage\": true}");
}

// Adds the program's files and syncs them before the folder gets the checkpoint's name.
void add_files(const Content& content, const std::string& staging) {
  try {
    content.add_files(staging);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(staging)) {
      if (!entry.is_regular_file()) continue;
      files::sync(files::open_file(entry.path(), O_RDONLY | O_CLOEXEC), entry.path());
    }
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kIo, formatted("files could not be added to checkpoint '{}': {}", content.tag, error.what()),
                "nothing was saved; former checkpoints are unharmed");
  }
}

Json write_file(RankFile& file, const std::string& path) {
  Json blocks = write_blocks(path, file.bytes(), kBlockBytes,
                             [&](uint64_t offset, uint64_t bytes, char* into) { file.fill(offset, bytes, into); });
  return {{"blocks", std::move(blocks)}, {"not_finite", file.not_finite()}};
}

// Returns the largest sequence of all machines, so that saves have the same order on each of them.
int64_t latest_sequence(const std::vector<Json>& staged) {
  int64_t latest = 0;
  for (const Json& one : staged)
    if (one.is_object()) latest = std::max(latest, one.at("sequence").get<int64_t>());
  return latest;
}

SaveResult result_of(const std::vector<Json>& described, const std::vector<Json>& written) {
  SaveResult result;
  for (const Json& part : described) result.bytes += part.at("bytes").get<uint64_t>();
  for (const Json& part : written)
    for (const auto& [tensor, count] : part.at("not_finite").items()) result.not_finite[tensor] += count.get<uint64_t>();
  return result;
}

Neighbours neighbours_of(const Ranks& ranks, const std::string& path) {
  if (ranks.machine.empty()) return {0, ranks.rank, ranks.size};
  const std::vector<Json> folders =
      agree(ranks, "checkpoint: machines", [&] { return Json(folder_identity(path, ranks.machine)); });
  const Json& mine = folders[ranks.rank];
  const auto before = folders.begin() + ranks.rank;
  return {static_cast<uint32_t>(std::find(folders.begin(), folders.end(), mine) - folders.begin()),
          static_cast<uint32_t>(std::count(folders.begin(), before, mine)),
          static_cast<uint32_t>(std::count(folders.begin(), folders.end(), mine))};
}

}  // namespace

Saver::Saver(std::string folder, Ranks ranks) : state_(std::make_unique<State>(std::move(folder), std::move(ranks))) {
  Ranks& all = state_->ranks;
  if (all.mesh.axes().empty()) all.mesh = MeshShape({{kDataAxis, all.size}});
  if (all.mesh.world_size() != all.size)
    throw Error(ErrorCode::kArgument, formatted("a mesh of {} was given to save from {} ranks", all.mesh.text(), all.size));
  if (state_->path.empty()) throw Error(ErrorCode::kArgument, "the folder for checkpoints has no name");
  state_->neighbours = neighbours_of(state_->ranks, state_->path);
  agree(state_->ranks, "checkpoint: folder", [&] {
    return with_folder(state_->path, [&] {
      if (state_->ranks.rank == state_->neighbours.keeper) state_->folder = std::make_unique<Folder>(state_->path);
      return Json();
    });
  });
}

const Neighbours& Saver::neighbours() const { return state_->neighbours; }

Saver::~Saver() = default;

SaveResult Saver::save(const Content& content, const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const Ranks& ranks = state_->ranks;
  const uint32_t keeper = state_->neighbours.keeper;
  Folder* folder = state_->folder.get();

  const auto together = [&](const std::string& what, const std::function<Json()>& part) {
    return agree(ranks, formatted("checkpoint: {}", what), [&] { return with_folder(state_->path, part); });
  };

  // Five rounds follow, each a barrier that shares errors. A failure on one rank stops all ranks
  // before the next round, and staging folders that are not committed are removed.
  std::optional<RankFile> file;
  const std::vector<Json> parts = together("slices", [&] {
    if (const std::string fault = tag_fault(content.tag); !fault.empty())
      throw Error(ErrorCode::kArgument, formatted("the tag '{}' {}", content.tag, fault), "give a name like 'step100'");
    file.emplace(content.slices);
    return describe(content, *file, ranks, keeper);
  });

  Manifest manifest;  // set only on a keeper
  StagingFolder staging(folder);
  const std::vector<Json> staged = together("staging", [&] {
    if (!folder) return Json();
    manifest = merge(parts, keeper);
    if (options.continues) folder->adopt();
    folder->tell_of_others();
    staging.path = folder->stage(content.tag, manifest.bytes(keeper) + format_manifest(manifest).size());
    return description_of(staging, manifest, *folder);
  });
  const auto name = staged[keeper].at("name").get<std::string>();
  manifest.saved_at = staged[0].at("saved_at");
  manifest.sequence = latest_sequence(staged);

  const std::vector<Json> written = together("files", [&] {
    const std::string made = formatted("{}/{}", state_->path, name);
    check_shared(made, state_->path, ranks.rank, staged[keeper]);
    return write_file(*file, formatted("{}/{}", made, rank_file_name(ranks.rank)));
  });

  together("commit", [&] {
    if (!folder) return Json();
    if (content.add_files) add_files(content, staging.path);
    for (size_t rank = 0; rank < written.size(); ++rank)
      manifest.files[rank].blocks = written[rank].at("blocks").get<std::vector<uint64_t>>();
    folder->commit(staging.path, manifest);
    staging.release();
    return Json();
  });  // every machine has the checkpoint before `latest` names it
  together("latest", [&] {
    if (!folder) return Json();
    if (options.save_latest) folder->set_latest(content.tag);
    folder->retain(options.keep, content.tag);
    return Json();
  });
  SaveResult result = result_of(parts, written);
  result.path = formatted("{}/{}", state_->path, content.tag);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace gannet::checkpoint
