// One rank's tensor on every rank, to the bit, whatever its dtype and layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "interfaces/comm.h"

namespace gannet {

/// Every rank calls it, with a tensor of the same shape and dtype; the values of `root` are in it when it returns. Sparse tensors
/// may have other numbers of elements on each rank.
void broadcast(CommGroup* comm, const at::Tensor& tensor, uint32_t root = 0);

}  // namespace gannet
