// Copies one rank's tensor to every rank bit for bit, for any dtype and any dense or sparse layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "params/rank_context.h"

namespace gannet {

/// Every rank of the group calls this with a tensor of the same shape and dtype. Work queued on the
/// current stream afterwards sees the values of `root`. The number of elements of a sparse tensor
/// may differ between ranks.
void broadcast(const ReductionGroup& ranks, const at::Tensor& tensor, uint32_t root = 0);
/// The same, over the ranks of the data axis.
void broadcast(const RankContext& context, const at::Tensor& tensor, uint32_t root = 0);

}  // namespace gannet
