#include <gannet/error.h>

#include <chrono>

#include "checkpoint/agree.h"
#include "checkpoint/catalog.h"
#include "checkpoint/folder.h"
#include "checkpoint/plan.h"

namespace gannet::checkpoint {

struct Saver::State {
  std::string path;
  Ranks ranks;
  std::unique_ptr<Folder> folder;  // of rank 0
};

namespace {

// Rank 0's staging folder: gone, unless its content was put in place.
class Staging {
 public:
  explicit Staging(Folder* folder) : folder_(folder) {}
  ~Staging() {
    if (folder_ && !path.empty()) folder_->discard(path);
  }
  void release() { path.clear(); }
  std::string path;

 private:
  Folder* folder_;
};

}  // namespace

Saver::Saver(std::string folder, Ranks ranks) : state_(std::make_unique<State>(std::move(folder), std::move(ranks))) {
  if (state_->path.empty()) throw Error(ErrorCode::kArgument, "the folder for checkpoints has no name");
  agree_on_rank_0(state_->ranks, "checkpoint: folder", [&] {
    state_->folder = std::make_unique<Folder>(state_->path);
    return Json();
  });
}

Saver::~Saver() = default;

SaveResult Saver::save(const Content& content, const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const Ranks& ranks = state_->ranks;
  Folder* folder = state_->folder.get();

  std::optional<RankFile> file;
  const std::vector<Json> parts = agree(ranks, "checkpoint: slices", [&] {
    const std::string fault = tag_fault(content.tag);
    if (!fault.empty()) throw Error(ErrorCode::kArgument, "the tag '" + content.tag + "' " + fault, "give a name like 'step100'");
    file.emplace(content.slices);
    return describe(content, *file, ranks.rank);
  });

  Manifest manifest;  // of rank 0
  Staging staging(folder);
  const std::string name = agree_on_rank_0(ranks, "checkpoint: staging", [&] {
    manifest = merge(parts);
    if (options.continues) folder->adopt();
    folder->tell_of_others();
    staging.path = folder->stage(content.tag, manifest.bytes() + format_manifest(manifest).size());
    return Json(staging.path.substr(staging.path.rfind('/') + 1));
  });

  const std::vector<Json> written = agree(ranks, "checkpoint: files", [&] {
    const std::string path = state_->path + "/" + name + "/" + rank_file_name(ranks.rank);
    return Json(write_blocks(path, file->bytes(), kBlockBytes,
                             [&](uint64_t offset, uint64_t bytes, char* into) { file->fill(offset, bytes, into); }));
  });

  agree_on_rank_0(ranks, "checkpoint: commit", [&] {
    for (size_t rank = 0; rank < written.size(); ++rank) manifest.files[rank].blocks = written[rank].get<std::vector<uint64_t>>();
    folder->commit(staging.path, manifest);
    staging.release();
    if (options.save_latest) folder->set_latest(content.tag);
    folder->retain(options.keep, content.tag);
    return Json();
  });

  SaveResult result;
  result.path = state_->path + "/" + content.tag;
  for (const Json& part : parts) result.bytes += part.at("bytes").get<uint64_t>();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace gannet::checkpoint
