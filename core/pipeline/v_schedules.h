// Rows of the schedules with two chunks per rank in a V (built_in.h).
#pragma once

#include "pipeline/schedule.h"

namespace gannet::pipeline {

std::vector<Action> zb_v_row(uint32_t rank, uint32_t ranks, int64_t micro_batches);
std::vector<Action> dualpipe_v_row(uint32_t rank, uint32_t ranks, int64_t micro_batches);

}  // namespace gannet::pipeline
