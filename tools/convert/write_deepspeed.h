// Writes a Gannet checkpoint as DeepSpeed 0.19.6 saves its own, for a ZeRO stage and a number of
// ranks, or as a universal checkpoint, which DeepSpeed loads at any stage from 1 on and any number
// of ranks ("checkpoint": {"load_universal": true}).
//
//   const ToDeepSpeedReceipt receipt = write_deepspeed(checkpoint::open("run1", {}), "back", {.stage = 2, .ranks = 8});
//   std::cout << receipt.to_string();     // back/global_step100/..., back/latest; and what the files cannot hold
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/deepspeed_source.h"

namespace gannet::convert {

struct DeepSpeedLayout {
  int64_t stage = 0;           // ZeRO's, 0 to 3
  int64_t ranks = 1;           // along the data axis
  int64_t sub_group_size = 0;  // of stage 3; 0: zero_optimization.sub_group_size of the run's config
};

struct ToDeepSpeedReceipt {
  std::string source, path;  // <folder>/<tag> of both
  uint64_t files = 0, bytes = 0;
  std::vector<std::string> written = {}, left_out = {};
  std::vector<std::string> other_exports = {};  // staged folders in the same place, of killed or running exports
  std::string to_string() const;
};

// The receipt's lines that both formats have.
std::vector<std::string> written_lines(const DeepSpeedSource& source);

// Both write beside the final folder, sync and rename. They throw the errors of deepspeed_source(),
// Error(kArgument) for a stage or a number of ranks that DeepSpeed does not have or if the folder of
// the tag exists, and Error(kIo).
ToDeepSpeedReceipt write_deepspeed(const checkpoint::Opened& from, const std::string& out, const DeepSpeedLayout& layout,
                                   const ToDeepSpeedOptions& options);
ToDeepSpeedReceipt write_universal(const checkpoint::Opened& from, const std::string& out, const ToDeepSpeedOptions& options);

}  // namespace gannet::convert
