// The checkpoints in a folder: which exist, whether each is complete, and which one `latest` names.
#pragma once

#include <gannet/error.h>

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace gannet::checkpoint {

inline constexpr const char* kLatestName = "latest";

// Returns "" if `tag` is a valid checkpoint name, otherwise what is wrong with it.
std::string tag_fault(const std::string& tag);

// Reads the manifest in `path` and checks the sizes of its files. Throws Error(kCorrupt,
// kUnsupported, kIo).
Manifest inspect(const std::string& path);
// [files] Whether each file is in another machine's folder: the manifest names several keepers, and
// `path` has files from some of them, but none from this file's keeper. False means that the file
// must be in `path`.
std::vector<bool> lies_elsewhere(const Manifest& manifest, const std::string& path);
void check_sizes(const Manifest& manifest, const std::string& path);  // error messages begin with the file's name

struct FoundCheckpoint {
  std::string tag, path;
  std::optional<Error> problem;
  uint64_t bytes = 0;  // valid if the manifest could be read, like the following members
  int64_t sequence = -1, step = -1;
  std::string saved_at = {};
};

// Returns the checkpoints, newest first, followed by those with an unreadable manifest. Throws
// Error(kNotFound, kIo) if the folder itself cannot be read.
std::vector<FoundCheckpoint> scan(const std::string& folder);

inline constexpr uint64_t kMaxLatestBytes = 4096;  // largest size of a regular `latest`; a larger one is refused

// The content of <folder>/latest: a line with the tag and a line with its checksum. A single line,
// as written by people and DeepSpeed, is accepted as well.
struct LatestTag {
  std::string tag;
  std::string problem;      // for example "`latest` is missing"; then there is no tag
  bool is_checked = false;  // the tag has a checksum; a tag without one may be truncated
};
LatestTag read_latest(const std::string& folder);
std::string format_latest(const std::string& tag);

}  // namespace gannet::checkpoint
