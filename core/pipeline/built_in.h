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
  std::optional<uint32_t> chunks;  // parts a rank; null: the default; only interleaved and interleaved-zb (2) have a choice
};

/// The names, in the order of this table (F, I, W: the times of a rank's passes; B = I + W):
///
/// name           | order
/// ---------------|------------------------------------------------------------------------------
/// gpipe          | all forwards, then all backwards (Huang et al. 2019): m micro-batches are alive
/// 1f1b           | one forward, one backward in turn; rank r keeps p - r alive. DeepSpeed's TrainSchedule
/// interleaved    | 1f1b over several chunks a rank (Narayanan et al. 2021, 2.2), with the warm-up of Megatron and
///                | PyTorch's ScheduleInterleaved1F1B; one chunk is 1f1b
/// zb-h1          | 1f1b with I and W apart, W delayed by r on rank r (Qi et al. 2023, 2.2): bubble (p-1)(F+I-W)
/// interleaved-zb | the same over several chunks a rank (PyTorch's ScheduleInterleavedZeroBubble)
/// zb-v           | two chunks a rank as a V (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory", and 2023, 6)
/// dualpipe-v     | two chunks a rank as a V, whole backwards where they fill no bubble (DeepSeek's DualPipeV); m >= 2p
/// inference      | forwards alone
/// data-parallel  | forward and backward in turn; 1 stage
const std::vector<std::string>& built_in_names();

/// A built-in schedule. Throws Error(kArgument) for an unknown name, for a size below 1 or above 2^22 forwards in all,
/// and for a size that the schedule cannot have: a wrong number of chunks or stages, micro-batches that interleaved ones
/// cannot divide into equal rounds of at least p (or one round), and m < 2p for dualpipe-v.
Schedule built_in(const std::string& name, const ScheduleSize& size);

}  // namespace gannet::pipeline
