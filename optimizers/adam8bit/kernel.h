// Runs AdamW8bit's update of elements [begin, end) of the range in args, which are whole blocks of
// a tensor, except that the last may be partial. Runs on the calling thread with the widest SIMD of
// this CPU.
#pragma once

#include <gannet/abi.h>

#include "optimizers/adam8bit/adam8bit.h"

namespace gannet::rules {

void adam8bit_update_cpu(const Adam8bitStep& step, const gannet_update_args& args, uint64_t begin, uint64_t end);

}  // namespace gannet::rules
