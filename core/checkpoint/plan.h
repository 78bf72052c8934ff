// What the ranks are about to save, put together: from each rank's slices to the manifest without checksums.
#pragma once

#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/value_json.h"

namespace gannet::checkpoint {

// One rank's part, as it is sent to the others. Throws Error(kArgument) where it cannot be JSON.
Json describe(const Content& content, const RankFile& file, const Ranks& ranks, uint32_t keeper);

// As the folder of `keeper` has it. Throws Error(kArgument, kMismatch) where the parts make no whole: a tensor of two shapes, a
// gap, an element given twice, two tags, two meshes.
Manifest merge(const std::vector<Json>& parts, uint32_t keeper);

std::string rank_file_name(size_t rank);  // "rank-00000.safetensors"

}  // namespace gannet::checkpoint
