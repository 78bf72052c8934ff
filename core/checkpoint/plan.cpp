#include "checkpoint/plan.h"

#include <gannet/error.h>

#include <cstdio>
#include <map>

#include "base/format.h"
#include "checkpoint/saved_at.h"
#include "files/safetensors_header.h"

namespace gannet::checkpoint {
namespace {

std::string shape_text(const Json& slice) {
  return formatted("{} {}", slice.at("dtype").get<std::string>(), slice.at("shape").dump());
}

std::string shape_text(const TensorInfo& info) {
  return formatted("{} {}", safetensors::dtype_name(info.dtype), Json(info.shape).dump());
}

// Parses the output of add_split.
Split split_of(const Json& slice) {
  Split split;
  if (!slice.contains("boxes")) return split;
  for (const Json& box : slice.at("boxes")) split.boxes.push_back({box.at("offsets"), box.at("sizes")});
  if (slice.contains("dim")) split.dim = slice.at("dim");
  return split;
}

MeshShape mesh_of(const Json& json) {
  std::vector<MeshAxis> axes;
  for (const Json& axis : json.at("axes")) axes.push_back({axis[0], axis[1]});
  return MeshShape(std::move(axes), json.value("ranks", std::vector<uint32_t>()));
}

}  // namespace

std::string rank_file_name(size_t rank) {
  char name[48];
  std::snprintf(name, sizeof(name), "rank-%05zu.safetensors", rank);
  return name;
}

Json describe(const Content& content, const RankFile& file, const Ranks& ranks, uint32_t keeper) try {
  Json slices = Json::array();
  for (size_t i = 0; i < content.slices.size(); ++i) {
    const Slice& slice = content.slices[i];
    slices.push_back(Json{{"name", slice.name},
                          {"dtype", safetensors::dtype_name(slice.data.scalar_type())},
                          {"shape", slice.shape},
                          {"begin", slice.begin},
                          {"numel", slice.data.numel()},
                          {"offset", file.offset(i)}});
    add_split(slices.back(), simplified(slice.shape, slice.split));
    if (slice.is_for_neighbours) slices.back()["is_for_neighbours"] = true;
  }
  Json part{{"tag", content.tag},
            {"bytes", file.bytes()},
            {"keeper", keeper},
            {"mesh", mesh_json(ranks.mesh)},
            {"slices", std::move(slices)},
            {"rank_document", to_json(content.rank_document)}};
  if (ranks.rank == 0) part["document"] = to_json(content.document);
  const Json back = parse_json(part.dump());  // fails now if it cannot be written or read back
  return part;
} catch (const Json::exception& error) {
  throw Error(ErrorCode::kArgument, std::string("the checkpoint's document cannot be written as JSON: ") + error.what(),
              "texts must be UTF-8, nested at most 200 deep; give other bytes as a tensor");
}

Manifest merge(const std::vector<Json>& parts, uint32_t keeper) {
  Manifest manifest;
  manifest.gannet = GANNET_VERSION;
  manifest.tag = parts.front().at("tag");
  manifest.saved_at = utc_now();
  manifest.world_size = static_cast<uint32_t>(parts.size());
  manifest.mesh = mesh_of(parts.front().at("mesh"));
  manifest.block_bytes = kBlockBytes;
  manifest.document = from_json(parts.front().at("document")).as_dict();

  std::map<std::string, std::pair<size_t, size_t>> known;  // name -> (tensor index, the first rank that gave it)
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const Json& part = parts[rank];
    if (part.at("tag") != manifest.tag)
      throw Error(
          ErrorCode::kMismatch,
          formatted("ranks save under different tags: rank 0 '{}', rank {} {}", manifest.tag, rank, part.at("tag").dump()),
          "give every rank the same tag");
    if (part.at("mesh") != parts.front().at("mesh"))
      throw Error(ErrorCode::kMismatch,
                  formatted("ranks save with different meshes: rank 0 has {}, rank {} {}", manifest.mesh.text(), rank,
                            mesh_of(part.at("mesh")).text()),
                  "give every rank the same mesh");
    manifest.rank_documents.push_back(from_json(part.at("rank_document")).as_dict());
    const auto its_keeper = part.at("keeper").get<uint32_t>();
    manifest.files.push_back({rank_file_name(rank), part.at("bytes").get<uint64_t>(), {}, its_keeper});
    for (const Json& slice : part.at("slices")) {
      if (its_keeper != keeper && slice.contains("is_for_neighbours")) continue;  // this folder has its own copy
      const std::string name = slice.at("name");
      const auto [at, is_new] = known.try_emplace(name, manifest.tensors.size(), rank);
      if (is_new)
        manifest.tensors.push_back(
            {{name, *safetensors::dtype_of(slice.at("dtype").get<std::string>()), slice.at("shape").get<std::vector<int64_t>>()},
             {}});
      TensorEntry& tensor = manifest.tensors[at->second.first];
      if (shape_text(slice) != shape_text(tensor.info))
        throw Error(ErrorCode::kArgument, formatted("tensor '{}' is {} on rank {} and {} on rank {}", name,
                                                    shape_text(tensor.info), at->second.second, shape_text(slice), rank));
      tensor.slices.push_back({slice.at("begin"), slice.at("numel"), rank, slice.at("offset"), split_of(slice)});
    }
  }
  for (TensorEntry& tensor : manifest.tensors) {
    const std::string fault = coverage_fault(tensor.slices, tensor.info.shape);
    if (!fault.empty())
      throw Error(ErrorCode::kArgument,
                  formatted("tensor '{}' {}: the ranks' slices must cover it once", tensor.info.name, fault));
  }
  return manifest;
}

}  // namespace gannet::checkpoint
