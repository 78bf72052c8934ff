// Plans a save: merges each rank's slices into the manifest, which has no checksums yet.
#pragma once

#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/value_json.h"

namespace gannet::checkpoint {

// Describes one rank's slices and documents in the form that is sent to the other ranks. Throws
// Error(kArgument) if it cannot be expressed in JSON.
Json describe(const Content& content, const RankFile& file, const Ranks& ranks, uint32_t keeper);

// Returns the manifest for the folder of `keeper`. Throws Error(kArgument, kMismatch) if the parts
// are inconsistent: a tensor with two shapes, a gap, an element given twice, two tags, two meshes.
Manifest merge(const std::vector<Json>& parts, uint32_t keeper);

std::string rank_file_name(size_t rank);  // "rank-00000.safetensors"

}  // namespace gannet::checkpoint
