// Logs how long stages wait, and what they move between ranks.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "params/rank_context.h"
#include "pipeline/schedule.h"

namespace gannet::pipeline {

/// Logs the idle share of a step of `micro_batches`, assuming that all stages take equally long.
void log_idle(const Schedule& order, int64_t micro_batches);
/// Logs what ZeRO stage 3 gathers in a step, compared with stage 2, if it gathers anything.
/// `trained`: elements of each pipeline stage.
void log_gathers(const Schedule& order, int64_t micro_batches, const RankContext& ranks, const torch::nn::Module& module,
                 const std::vector<int64_t>& trained);
/// Logs the sizes of the activations passed between stages. `bytes`: what this rank sent, for each
/// part. Collective; rank 0 logs the largest.
void log_hops(std::vector<double> bytes, const RankContext& ranks, const std::vector<uint32_t>& stage_of);

}  // namespace gannet::pipeline
