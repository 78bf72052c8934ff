// Exports weights for torch.load: pytorch_model.bin, or shards pytorch_model-00001-of-0000N.bin
// with pytorch_model.bin.index.json.
#pragma once

#include "checkpoint/export.h"

namespace gannet::convert {

const checkpoint::ExportFormat& pt_format();

}  // namespace gannet::convert
