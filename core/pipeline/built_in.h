// Gannet's built-in schedules, by name.
//
//   const Schedule schedule = built_in("zb-v", {.stages = 4, .micro_batches = 8});
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pipeline/schedule.h"

namespace gannet::pipeline {

struct ScheduleSize {
  uint32_t stages = 1;             // ranks along the pipeline, p
  int64_t micro_batches = 1;       // m
  std::optional<uint32_t> chunks;  // parts per rank; null: the default; selectable only for interleaved and interleaved-zb (2)
};

/// The names, in the order of this table (F, I, W: the times of a rank's passes; B = I + W):
///
/// name           | order
/// ---------------|------------------------------------------------------------------------------
/// gpipe          | all forwards, then all backwards (Huang et al. 2019); m micro-batches are alive
/// 1f1b           | one forward, one backward in turn; rank r keeps p - r alive. DeepSpeed's TrainSchedule
/// interleaved    | 1f1b over several chunks per rank (Narayanan et al. 2021, 2.2), with the
///                | warm-up of Megatron and PyTorch's ScheduleInterleaved1F1B; one chunk is 1f1b
/// zb-h1          | 1f1b with I and W split, W delayed by r on rank r (Qi et al. 2023, 2.2): bubble (p-1)(F+I-W)
/// interleaved-zb | the same over several chunks per rank (PyTorch's ScheduleInterleavedZeroBubble)
/// zb-v           | V of two chunks per rank (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", and 2023, 6)
/// dualpipe-v     | V of two chunks per rank, whole backwards where they fill no bubble (DeepSeek's DualPipeV); m >= 2p
/// inference      | forwards only
/// data-parallel  | forward and backward in turn; 1 stage
const std::vector<std::string>& built_in_names();

/// Throws Error(kArgument) for an unknown name, sizes below 1, more than 2^22 forwards, and sizes
/// that the schedule does not support: wrong numbers of chunks or stages, m < 2p for dualpipe-v,
/// and interleaved micro-batches not divisible into equal rounds of at least p (or one round).
Schedule built_in(const std::string& name, const ScheduleSize& size);

}  // namespace gannet::pipeline
