#include "checkpoint/catalog.h"

#include <xxhash.h>

#include <algorithm>
#include <set>

#include "base/first_bytes.h"
#include "base/format.h"
#include "base/text.h"
#include "config/parse.h"
#include "files/bytes.h"
#include "files/io.h"

namespace gannet::checkpoint {
namespace {

// Returns the names in the folder. Errors are worded for checkpoints.
std::vector<std::string> entries_of(const std::string& folder) try {
  return files::names_in(folder);
} catch (const Error& error) {
  if (error.code() != ErrorCode::kNotFound) throw;
  if (files::kind_of(folder).exists)
    throw Error(ErrorCode::kNotFound, formatted("{} is a file, not a folder of checkpoints", folder));
  throw Error(ErrorCode::kNotFound, error.message(), "check the path; checkpoints are in <folder>/<tag>/");
}

// Whether a manifest.json belongs to another program: JSON without a "gannet" member. An unreadable
// one may be a damaged Gannet manifest.
bool is_manifest_of_others(const std::string& path) try {
  const Value manifest = config::parse_value(files::read_file(path, kMaxManifestBytes));
  return !manifest.is_dict() || !manifest.as_dict().find("gannet");
} catch (const Error&) {
  return false;
}

// Whether the folder is a Gannet checkpoint, that is, contains Gannet's manifest or rank files.
// `problem`: set if that cannot be determined.
bool looks_like_one(const std::string& path, std::optional<Error>& problem) try {
  if (!files::kind_of(path).is_folder) return false;
  for (const std::string& name : files::names_in(path))
    if (name.starts_with("rank-") && name.ends_with(".safetensors")) return true;
  const std::string manifest = formatted("{}/{}", path, kManifestName);
  return files::kind_of(manifest).exists && !is_manifest_of_others(manifest);
} catch (const Error& error) {
  problem = error;
  return true;
}

FoundCheckpoint examine(const std::string& tag, const std::string& path) {
  FoundCheckpoint found;
  found.tag = tag;
  found.path = path;
  try {
    const std::string file = formatted("{}/{}", path, kManifestName);
    if (!files::kind_of(file).exists) throw Error(ErrorCode::kCorrupt, formatted("{} is missing", kManifestName));
    const Manifest manifest = parse_manifest(files::read_file(file, kMaxManifestBytes), kManifestName);
    found.sequence = manifest.sequence;
    found.saved_at = manifest.saved_at;
    found.bytes = manifest.bytes();
    if (const Value* step = manifest.document.find("global_steps"); step && step->is_int()) found.step = step->as_int();
    check_sizes(manifest, path);
  } catch (const Error& error) {
    found.problem = error;
  }
  return found;
}

// Refuses a Git LFS pointer, as in a clone of a repository that stores large files separately.
void refuse_pointer(const std::string& path, uint64_t bytes) {
  if (bytes > kHeadBytes) return;
  std::string head(bytes, '\0');
  files::open_bytes(path)->read(head.data(), bytes, 0);
  if (const RecognizedFormat found = recognized(head, bytes); found.format == Format::kLfsPointer)
    throw Error(ErrorCode::kUnsupported, formatted("{} is {}", path, found.what), found.next_step);
}

std::string latest_checksum(const std::string& tag) { return formatted("xxh3:{}", hex(XXH3_64bits(tag.data(), tag.size()))); }

}  // namespace

std::string tag_fault(const std::string& tag) {
  if (tag.empty()) return "is empty";
  if (tag == kLatestName) return "is the name of the file that names the newest checkpoint";
  if (tag.front() == '.') return "begins with a dot: such names are for saves that are not finished";
  if (tag.size() > 200) return "is longer than 200 bytes";
  for (unsigned char letter : tag)
    if (letter == '/' || letter < 0x20 || letter == 0x7f) return "is not a plain file name";
  return "";
}

std::vector<bool> lies_elsewhere(const Manifest& manifest, const std::string& path) {
  std::set<uint32_t> keepers, here;
  for (const FileEntry& file : manifest.files) keepers.insert(file.keeper);
  std::vector<bool> elsewhere(manifest.files.size(), false);
  if (keepers.size() < 2) return elsewhere;
  for (const FileEntry& file : manifest.files)
    if (files::kind_of(formatted("{}/{}", path, file.name)).exists) here.insert(file.keeper);
  if (here.empty()) return elsewhere;
  for (size_t i = 0; i < elsewhere.size(); ++i) elsewhere[i] = !here.contains(manifest.files[i].keeper);
  return elsewhere;
}

void check_sizes(const Manifest& manifest, const std::string& path) {
  const std::vector<bool> elsewhere = lies_elsewhere(manifest, path);
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    if (elsewhere[i]) continue;
    const FileEntry& file = manifest.files[i];
    const files::PathKind kind = files::kind_of(formatted("{}/{}", path, file.name));
    if (!kind.exists) throw Error(ErrorCode::kCorrupt, formatted("{} is missing", file.name));
    if (!kind.is_file) throw Error(ErrorCode::kCorrupt, formatted("{} is not a file", file.name));
    if (kind.bytes < file.bytes) refuse_pointer(formatted("{}/{}", path, file.name), kind.bytes);
    if (kind.bytes != file.bytes)
      throw Error(ErrorCode::kCorrupt, formatted("{}{}{} bytes, the manifest says {}", file.name,
                                                 kind.bytes < file.bytes ? " is truncated: it has " : " is too long: it has ",
                                                 kind.bytes, file.bytes));
  }
}

Manifest inspect(const std::string& path) {
  const std::string file = formatted("{}/{}", path, kManifestName);
  if (!files::kind_of(file).exists) throw Error(ErrorCode::kCorrupt, formatted("{}: {} is missing", path, kManifestName));
  Manifest manifest = parse_manifest(files::read_file(file, kMaxManifestBytes), file);
  try {
    check_sizes(manifest, path);
  } catch (const Error& error) {
    throw Error(error.code(), formatted("{}/{}", path, error.message()), error.next_step());
  }
  return manifest;
}

std::vector<FoundCheckpoint> scan(const std::string& folder) {
  std::vector<FoundCheckpoint> found;
  const std::vector<std::string> names = entries_of(folder);
  const auto add = [&](const std::string& tag, const std::string& path) {
    std::optional<Error> problem;
    if (!looks_like_one(path, problem)) return;
    found.push_back(problem ? FoundCheckpoint{.tag = tag, .path = path, .problem = problem} : examine(tag, path));
  };
  for (const std::string& name : names) {
    const std::string path = formatted("{}/{}", folder, name);
    if (name.front() != '.') {
      if (name != "lost+found") add(name, path);  // a folder at the root of many file systems, owned by root
      continue;
    }
    // On file systems that cannot exchange folders, a save interrupted while replacing a tag leaves
    // the old checkpoint under this name.
    const size_t old = name.rfind(".old-");
    const std::string tag = old == std::string::npos || old < 2 ? "" : name.substr(1, old - 1);
    if (!tag.empty() && std::find(names.begin(), names.end(), tag) == names.end()) add(tag, path);
  }
  std::stable_sort(found.begin(), found.end(), [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    return std::pair(a.sequence, a.saved_at) > std::pair(b.sequence, b.saved_at);
  });
  return found;
}

LatestTag read_latest(const std::string& folder) {
  const std::string path = formatted("{}/{}", folder, kLatestName);
  std::string text;
  try {
    const files::PathKind kind = files::kind_of(path);
    if (!kind.exists) return {"", "`latest` is missing"};
    if (!kind.is_file) return {"", "`latest` is not a regular file"};
    text = files::read_file(path, kMaxLatestBytes);
  } catch (const Error& error) {
    return {"", formatted("`latest` cannot be read ({})", error.message())};
  }
  const size_t end = text.find('\n');
  const std::string tag = text.substr(0, end);
  const std::string rest = end == std::string::npos ? "" : text.substr(end + 1);
  if (!tag_fault(tag).empty()) return {"", "`latest` is damaged: it does not hold a tag"};
  if (rest.empty()) return {tag, "", /*is_checked=*/false};
  if (rest != formatted("{}\n", latest_checksum(tag))) return {"", "`latest` is damaged: its checksum is not that of its tag"};
  return {tag, "", true};
}

std::string format_latest(const std::string& tag) { return formatted("{}\n{}\n", tag, latest_checksum(tag)); }

}  // namespace gannet::checkpoint
