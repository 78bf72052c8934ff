// Exports the weights of a DeepSpeed checkpoint like those of a Gannet one: the equivalent of
// DeepSpeed's zero_to_fp32.py.
//
//   std::vector<std::string> notes;
//   checkpoint::export_file(deepspeed_weights("run", "", {}, notes), "pytorch_model.bin", {.format = pt_format()});
#pragma once

#include <string>
#include <vector>

#include "checkpoint/export.h"

namespace gannet::convert {

// Exports fp32 masters (fp64 ones stay fp64), frozen parameters unless they are excluded, and
// buffers; tied tensors appear under each name. `notes`: what was left out, and why. Reads the
// files' pickles now and tensors on demand. Throws the errors of open_deepspeed and sort_out.
checkpoint::ExportSource deepspeed_weights(const std::string& dir, const std::string& tag, bool exclude_frozen,
                                           std::vector<std::string>& notes);

}  // namespace gannet::convert
