// The activations of an estimate: what the config keeps, and the changes ("rungs") that keep less,
// cheapest first.
#pragma once

#include <cstdint>
#include <string>

#include "activation/kept.h"
#include "config/settings.h"
#include "estimate/fit.h"

namespace gannet {

// Dimensions of a GPT's blocks, for an estimate by formula.
struct TransformerSize {
  uint64_t layers = 0, width = 0, heads = 1;
  uint64_t tokens = 0;  // of one micro-batch: samples x sequence length
};

/// Returns what pre-norm blocks with an inner width of 4 x `width` and fused attention keep, in
/// elements of `element_bytes`: 16 x tokens x width in each block, of which 1 is its input, and
/// fp32 log-sums of attention. Source: the count of Korthikanti et al. 2022, "Reducing Activation
/// Recomputation in Large Transformer Models", section 4.1, 34 bytes in 16 bits, without the two
/// dropout masks (2 bytes) and without attention's scores, which fused attention does not keep.
/// tests/activation/selective_test.cpp measures 16.2. Logits and the loss are not included.
activation::ActivationMeasurement kept_by_formula(const TransformerSize& size, uint32_t element_bytes);

/// Scales all bytes by `factor`: a module that trains in 16 bits may have been measured in fp32.
activation::ActivationMeasurement scaled(activation::ActivationMeasurement kept, double factor);

/// Adds to the plan what `settings` keep, and the rungs. Offload to NVMe is a rung if `room` knows
/// its free space.
void add_activations(zero::Plan& plan, const activation::ActivationMeasurement& kept,
                     const config::ActivationCheckpointing& settings, const zero::FreeSpace& room);

/// Two tables: the layers; and each rung with its bytes and the largest micro-batch that fits.
/// `micro_batch`: the samples that `kept` was counted with. `plan` must already have its
/// activations.
std::string activations_text(const zero::Plan& plan, const activation::ActivationMeasurement& kept, const zero::FreeSpace& room,
                             int64_t micro_batch);

}  // namespace gannet
