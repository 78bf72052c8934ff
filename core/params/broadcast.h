// One rank's tensor on every rank, to the bit, whatever its dtype and layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "params/rank_context.h"

namespace gannet {

/// Every rank of the group calls it, with a tensor of the same shape and dtype; what the current stream is given from here on
/// sees the values of `root` in it. Sparse tensors may have other numbers of elements on each rank.
void broadcast(const ReductionGroup& ranks, const at::Tensor& tensor, uint32_t root = 0);
/// The same of the data axis.
void broadcast(const RankContext& context, const at::Tensor& tensor, uint32_t root = 0);

}  // namespace gannet
