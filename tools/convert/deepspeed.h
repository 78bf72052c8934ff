// Converts a checkpoint of DeepSpeed 0.19.6 (ZeRO stages 0 to 3) to a Gannet one, which loads at
// any stage, world size and tier.
//
//   const DeepSpeedReceipt receipt = import_deepspeed("run", "imported", {});     // run/latest names the tag
//   std::cout << receipt.to_string();                                             // what was taken, and what was not
//
// Tensors are read while the checkpoint is written, block by block: only the files' pickles are
// held in memory.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gannet::convert {

struct DeepSpeedOptions {
  std::string tag;                                           // "": the tag in `latest`
  std::vector<std::pair<std::string, std::string>> renames;  // prefix -> replacement
  bool weights_only = false;                                 // no optimizer states
};

struct DeepSpeedReceipt {
  std::string source, path;  // <dir>/<tag>; the checkpoint that was written
  uint64_t bytes = 0;
  std::vector<std::string> taken;
  std::vector<std::string> not_taken;  // each with its reason
  std::vector<std::string> warnings;   // signs that the files may not be of one save
  std::string to_string() const;
};

// Throws the errors of open_deepspeed and sort_out (deepspeed_folder.h, deepspeed_state.h) and of checkpoint::Saver, and
// Error(kArgument) if the tag exists in `out` or a renaming is wrong. On an error nothing is left in `out`.
DeepSpeedReceipt import_deepspeed(const std::string& dir, const std::string& out, const DeepSpeedOptions& options);

}  // namespace gannet::convert
