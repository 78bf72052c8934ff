// Exports the weights of a DeepSpeed checkpoint as those of ours are exported: the equivalent of its script zero_to_fp32.py.
//
//   std::vector<std::string> notes;
//   checkpoint::export_file(deepspeed_weights("run", "", {}, notes), "pytorch_model.bin", {.format = pt_format()});
#pragma once

#include <string>
#include <vector>

#include "checkpoint/export.h"

namespace gannet::convert {

// fp32 masters (fp64 ones stay), frozen parameters unless they are excluded, buffers; tied ones under each name. `notes`: what
// was left out, and why. Reads the files' pickles now, tensors when they are asked for. Throws what open_deepspeed and sort_out
// do.
checkpoint::ExportSource deepspeed_weights(const std::string& dir, const std::string& tag, bool exclude_frozen,
                                           std::vector<std::string>& notes);

}  // namespace gannet::convert
