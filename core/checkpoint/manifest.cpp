#include "checkpoint/manifest.h"

#include <gannet/error.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>

#include "base/format.h"
#include "files/safetensors_header.h"

namespace gannet::checkpoint {
std::string checksum_line(std::string_view rest) {
  const XXH128_hash_t hash = XXH3_128bits(rest.data(), rest.size());
  return formatted("{}{}{}\",\n", kChecksumBegin, hex(hash.high64), hex(hash.low64));
}

std::string hex(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(number));
  return text;
}

uint64_t Manifest::bytes() const {
  uint64_t sum = 0;
  for (const FileEntry& file : files) sum += file.bytes;
  return sum;
}

uint64_t Manifest::bytes(uint32_t keeper) const {
  uint64_t sum = 0;
  for (const FileEntry& file : files) sum += file.keeper == keeper ? file.bytes : 0;
  return sum;
}

int64_t checked_numel(const std::vector<int64_t>& shape, c10::ScalarType dtype) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype)), numel = 1;
  for (int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return -1;
    numel *= size;
  }
  return numel;
}

std::string coverage_fault(std::vector<SliceEntry>& slices, const std::vector<int64_t>& shape) {
  const int64_t numel = numel_of(shape);
  std::sort(slices.begin(), slices.end(),
            [](const SliceEntry& a, const SliceEntry& b) { return std::pair(a.begin, a.numel) < std::pair(b.begin, b.numel); });
  if (std::any_of(slices.begin(), slices.end(), [](const SliceEntry& slice) { return !slice.split.is_whole(); })) {
    std::vector<Box> boxes;
    for (const SliceEntry& slice : slices)
      for (Box& box : boxes_of({shape, slice.split, slice.begin, slice.numel})) boxes.push_back(std::move(box));
    return cover_fault(shape, std::move(boxes));
  }
  int64_t covered = 0;
  for (const SliceEntry& slice : slices) {
    if (slice.numel == 0) continue;
    if (slice.begin > covered) return formatted("misses elements {} to {} of {}", covered, slice.begin, numel);
    if (slice.begin < covered)
      return formatted("has elements {} to {} twice", slice.begin, std::min(covered, slice.begin + slice.numel));
    covered += slice.numel;
  }
  return covered == numel ? "" : formatted("misses elements {} to {} of {}", covered, numel, numel);
}

Json mesh_json(const MeshShape& mesh) {
  Json axes = Json::array(), ranks = Json::array();
  for (const MeshAxis& axis : mesh.axes()) axes.push_back(Json::array({axis.name, axis.size}));
  Json json{{"axes", std::move(axes)}};
  bool is_counted = true;
  for (uint32_t place = 0; place < mesh.world_size(); ++place) {
    ranks.push_back(mesh.rank_at(place));
    is_counted = is_counted && mesh.rank_at(place) == place;
  }
  if (!is_counted) json["ranks"] = std::move(ranks);
  return json;
}

void add_split(Json& slice, const Split& split) {
  if (split.is_whole()) return;
  Json boxes = Json::array();
  for (const Box& box : split.boxes) boxes.push_back({{"offsets", box.offsets}, {"sizes", box.sizes}});
  slice["boxes"] = std::move(boxes);
  if (split.boxes.size() > 1) slice["dim"] = split.dim;
}

std::string format_manifest(const Manifest& manifest) try {
  // One line per file and tensor, for human readers.
  std::string rest;
  auto member = [&](const char* key, const Json& value) { rest += formatted("\"{}\": {},\n", key, value.dump()); };
  auto lines = [&](const char* key, size_t count, const std::function<Json(size_t)>& line) {
    rest += formatted("\"{}\": [", key);
    for (size_t i = 0; i < count; ++i) rest += (i ? ",\n" : "\n") + line(i).dump();
    rest += ']';
  };
  member("format", kFormat);
  member("gannet", manifest.gannet);
  member("tag", manifest.tag);
  member("saved_at", manifest.saved_at);
  member("sequence", manifest.sequence);
  member("world_size", manifest.world_size);
  member("mesh", mesh_json(manifest.mesh));
  member("block_bytes", manifest.block_bytes);
  member("document", to_json(manifest.document));
  lines("rank_documents", manifest.rank_documents.size(), [&](size_t i) { return to_json(manifest.rank_documents[i]); });
  rest += ",\n";
  lines("files", manifest.files.size(), [&](size_t i) {
    const FileEntry& file = manifest.files[i];
    Json blocks = Json::array();
    for (uint64_t checksum : file.blocks) blocks.push_back(hex(checksum));
    Json entry{{"name", file.name}, {"bytes", file.bytes}, {"blocks", std::move(blocks)}};
    if (file.keeper != 0) entry["keeper"] = file.keeper;
    return entry;
  });
  rest += ",\n";
  lines("tensors", manifest.tensors.size(), [&](size_t i) {
    const TensorEntry& tensor = manifest.tensors[i];
    Json slices = Json::array();
    for (const SliceEntry& slice : tensor.slices) {
      slices.push_back({{"begin", slice.begin}, {"numel", slice.numel}, {"file", slice.file}, {"offset", slice.offset}});
      add_split(slices.back(), slice.split);
    }
    return Json{{"name", tensor.info.name},
                {"dtype", safetensors::dtype_name(tensor.info.dtype)},
                {"shape", tensor.info.shape},
                {"slices", std::move(slices)}};
  });
  rest += "}\n";
  return checksum_line(rest) + rest;
} catch (const Json::exception& error) {
  throw Error(ErrorCode::kArgument,
              std::string("the checkpoint's documents and names cannot be written as JSON: ") + error.what(),
              "texts must be UTF-8; give other bytes as a tensor");
}

}  // namespace gannet::checkpoint
