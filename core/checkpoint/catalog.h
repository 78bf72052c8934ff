// The checkpoints of a folder, as they lie on disk: which there are, whether each is complete, and which `latest` names.
#pragma once

#include <gannet/error.h>

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace gannet::checkpoint {

inline constexpr const char* kLatestName = "latest";

// "" where `tag` can name a checkpoint, else what is wrong with it.
std::string tag_fault(const std::string& tag);

// Reads the manifest in `path` and compares the sizes of the files it names. Throws Error(kCorrupt, kUnsupported, kIo).
Manifest inspect(const std::string& path);
// Files that other machines' folders have. None: each file must be here. Only where files of more than one keeper are named, and
// all of a keeper's are missing.
std::vector<bool> lies_elsewhere(const Manifest& manifest, const std::string& path);
void check_sizes(const Manifest& manifest, const std::string& path);  // messages begin with the file's name

struct Found {
  std::string tag, path;
  std::optional<Error> problem;
  uint64_t bytes = 0;  // this and what follows: where the manifest could be read
  int64_t sequence = -1, step = -1;
  std::string saved_at = {};
};

// Newest first; those whose manifest cannot be read at the end. Throws Error(kNotFound, kIo) about the folder itself.
std::vector<Found> scan(const std::string& folder);

inline constexpr uint64_t kMaxLatestBytes = 4096;  // of a regular file; anything else is refused

// What stands in <folder>/latest: a line with the tag and a line with its checksum; a file of one line, as people and DeepSpeed
// write it, is taken too.
struct Latest {
  std::string tag;
  std::string problem;      // "`latest` is missing"; then there is no tag
  bool is_checked = false;  // the checksum is there: a tag without one may be the beginning of another
};
Latest read_latest(const std::string& folder);
std::string format_latest(const std::string& tag);

}  // namespace gannet::checkpoint
