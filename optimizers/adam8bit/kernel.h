// Runs AdamW8bit's update over elements [begin, end) of the range in args: whole blocks of one
// tensor, except that the last may be partial. Runs on the calling thread with this CPU's widest
// SIMD.
#pragma once

#include <gannet/abi.h>

#include "optimizers/adam8bit/adam8bit.h"

namespace gannet::rules {

void adam8bit_update_cpu(const Adam8bitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end);

}  // namespace gannet::rules
