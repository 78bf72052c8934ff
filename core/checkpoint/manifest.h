// The manifest of a checkpoint, which ties its files together: formats and parses text, without
// access to files.
//
//   {"checksum": "xxh3-128:0123456789abcdef0123456789abcdef",     the first line; it covers all bytes after it
//   "format": 2, "gannet": "0.1.0", "tag": "step100", "saved_at": ..., "sequence": 7, "world_size": 4,
//   "mesh": {"axes": [["data", 2], ["tensor", 2]]}, and "ranks" if they are not numbered in that order
//   "block_bytes": ...,
//   "document": {...}, "rank_documents": [{...}, ...],
//   "files": [{"name": "rank-00000.safetensors", "bytes": ..., "blocks": ["<XXH3 of the first block>", ...]}, ...],
//             and "keeper": 2 for files of a machine with its own folder: the first rank there
//   "tensors": [{"name": ..., "dtype": "F32", "shape": [...], "slices": [{"begin":, "numel":, "file":, "offset":}, ...]}, ...]}
//             and "boxes": [{"offsets": [...], "sizes": [...]}, ...] in slices of a tensor split
//             along an axis: the range is in the local tensor that the boxes form, concatenated
//             along "dim" if there are several
//
// Format 1 has no mesh (its ranks are one axis, data) and no boxes. It stays readable forever.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/value_json.h"

namespace gannet::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr int64_t kFormat = 2;  // the format written; older ones are readable
inline constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 30;

struct FileEntry {
  std::string name;
  uint64_t bytes = 0;
  std::vector<uint64_t> blocks;  // XXH3 of each block
  uint32_t keeper = 0;           // files with the same keeper are in one folder
};

struct SliceEntry {
  int64_t begin = 0, numel = 0;
  size_t file = 0;      // index into files
  uint64_t offset = 0;  // bytes from the start of the file
  Split split = {};
};

struct TensorEntry {
  TensorInfo info;
  std::vector<SliceEntry> slices;  // in order of begin; together they cover the tensor exactly once
};

struct Manifest {
  std::string gannet, tag, saved_at;
  int64_t sequence = 0;  // greater than that of any checkpoint in the folder: the order of saves, independent of clocks
  uint32_t world_size = 1;
  MeshShape mesh;  // the mesh of the world_size ranks
  uint64_t block_bytes = 0;
  Dict document;
  std::vector<Dict> rank_documents;
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;

  uint64_t bytes() const;  // total size of all files
  uint64_t bytes(uint32_t keeper) const;
};

// Throws Error(kArgument) if a string is not UTF-8.
std::string format_manifest(const Manifest& manifest);

// Returns the first line of a manifest, given the other lines in `rest`.
std::string checksum_line(std::string_view rest);
inline constexpr std::string_view kChecksumBegin = "{\"checksum\": \"xxh3-128:";

// Trusts nothing: verifies the checksum, the syntax, that sizes agree, that slices are inside their
// files and disjoint, and that each tensor is covered exactly once. Throws Error(kCorrupt), or
// Error(kUnsupported) for a newer format. `path` is for the message.
Manifest parse_manifest(std::string_view text, const std::string& path);

// Returns "" if the slices, in any order, cover a tensor exactly once; otherwise a sentence about
// the first gap or overlap: "misses elements 3 to 4 of 9" or, with boxes, "has elements [0:2, 4:8]
// twice". Sorts the slices.
std::string coverage_fault(std::vector<SliceEntry>& slices, const std::vector<int64_t>& shape);

Json mesh_json(const MeshShape& mesh);
void add_split(Json& slice, const Split& split);  // adds the split's members to a slice; none for a whole tensor

// The number of elements; -1 if a size is negative, or if the number of elements or bytes does not
// fit into 63 bits.
int64_t checked_numel(const std::vector<int64_t>& shape, c10::ScalarType dtype);

std::string hex(uint64_t number);  // 16 digits

}  // namespace gannet::checkpoint
