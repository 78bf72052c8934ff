// The activations in an estimate: those that the config keeps, and the changes to the config
// ("rungs") that keep fewer, cheapest first.
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
  uint64_t tokens = 0;  // per micro-batch: samples x sequence length
};

/// Returns the activations that pre-norm blocks with an inner width of 4 x `width` and fused
/// attention keep, in units of `element_bytes`: 16 x tokens x width per block (1 x is the input),
/// plus attention's fp32 log-sums. Source: Korthikanti et al. 2022, "Reducing Activation
/// Recomputation in Large Transformer Models", section 4.1, which counts 34 bytes in 16 bits; less
/// the two dropout masks (2 bytes) and attention's scores, which fused attention does not keep.
/// tests/activation/selective_test.cpp measures 16.2. Logits and the loss are not included.
activation::ActivationMeasurement kept_by_formula(const TransformerSize& size, uint32_t element_bytes);

/// Scales all bytes by `factor`: a module that trains in 16 bits may have been measured in fp32.
activation::ActivationMeasurement scaled(activation::ActivationMeasurement kept, double factor);

/// Adds the activations that `settings` keep, and the rungs, to the plan. Offload to NVMe is a rung
/// if `room` includes the free NVMe space.
void add_activations(zero::Plan& plan, const activation::ActivationMeasurement& kept,
                     const config::ActivationCheckpointing& settings, const zero::FreeSpace& room);

/// Returns two tables: one of the layers, and one of the rungs, each with its bytes and the largest
/// micro-batch that fits. `micro_batch`: the number of samples for which `kept` was measured.
/// `plan` must already have its activations.
std::string activations_text(const zero::Plan& plan, const activation::ActivationMeasurement& kept, const zero::FreeSpace& room,
                             int64_t micro_batch);

}  // namespace gannet
