// The manifest of a checkpoint: what makes its files one whole. Text in, checked entries out, and back; no file is touched.
//
//   {"checksum": "xxh3-128:0123456789abcdef0123456789abcdef",     the first line: of all the bytes after it
//   "format": 2, "gannet": "0.1.0", "tag": "step100", "saved_at": ..., "sequence": 7, "world_size": 4,
//   "mesh": {"axes": [["data", 2], ["tensor", 2]]}, and "ranks" where they are not counted in that order
//   "block_bytes": ...,
//   "document": {...}, "rank_documents": [{...}, ...],
//   "files": [{"name": "rank-00000.safetensors", "bytes": ..., "blocks": ["<XXH3 of the first block>", ...]}, ...],
//             and "keeper": 2 in those of a machine with a folder of its own, the first rank there
//   "tensors": [{"name": ..., "dtype": "F32", "shape": [...], "slices": [{"begin":, "numel":, "file":, "offset":}, ...]}, ...]}
//             and "boxes": [{"offsets": [...], "sizes": [...]}, ...] in the slices of a tensor that an axis splits: the run is
//             one of the local tensor that the boxes make up, side by side along "dim" where there are several
//
// Format 1 has neither a mesh (its ranks are one axis, data) nor boxes; it is read for ever.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/value_json.h"

namespace gannet::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr int64_t kFormat = 2;  // that is written; older ones are read
inline constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 30;

struct FileEntry {
  std::string name;
  uint64_t bytes = 0;
  std::vector<uint64_t> blocks;  // XXH3 of each
  uint32_t keeper = 0;           // files of one keeper lie in one folder
};

struct SliceEntry {
  int64_t begin = 0, numel = 0;
  size_t file = 0;      // index into files
  uint64_t offset = 0;  // bytes, from the beginning of the file
  Split split = {};
};

struct TensorEntry {
  TensorInfo info;
  std::vector<SliceEntry> slices;  // they cover the tensor once; in the order of begin
};

struct Manifest {
  std::string gannet, tag, saved_at;
  int64_t sequence = 0;  // one more than any checkpoint that was in the folder: the order of saves, whatever the clocks say
  uint32_t world_size = 1;
  MeshShape mesh;  // of world_size ranks
  uint64_t block_bytes = 0;
  Dict document;
  std::vector<Dict> rank_documents;
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;

  uint64_t bytes() const;  // of all files
  uint64_t bytes(uint32_t keeper) const;
};

// Throws Error(kArgument) where a text in it is not UTF-8.
std::string format_manifest(const Manifest& manifest);

// The first line of a manifest whose other lines are `rest`.
std::string checksum_line(std::string_view rest);
inline constexpr std::string_view kChecksumBegin = "{\"checksum\": \"xxh3-128:";

// Believes nothing: checksum, syntax, sizes against one another, slices inside their files and apart, each tensor covered once.
// Throws Error(kCorrupt), or Error(kUnsupported) for a newer format; `path` is for the message.
Manifest parse_manifest(std::string_view text, const std::string& path);

// Whether slices, in any order, cover a tensor once; else a sentence about the first gap or overlap: "misses elements 3 to 4 of
// 9", with boxes "has elements [0:2, 4:8] twice". Sorts them.
std::string coverage_fault(std::vector<SliceEntry>& slices, const std::vector<int64_t>& shape);

Json mesh_json(const MeshShape& mesh);
void add_split(Json& slice, const Split& split);  // as members of a slice; nothing for a whole tensor

// The number of elements, or -1 where it (or the bytes) would not fit 63 bits or a size is negative.
int64_t checked_numel(const std::vector<int64_t>& shape, c10::ScalarType dtype);

std::string hex(uint64_t number);  // 16 digits

}  // namespace gannet::checkpoint
