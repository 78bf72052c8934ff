// Rules that involve more than one key. Each throws Error at the first violation, with the position
// of a key.
#pragma once

#include "config/effective.h"
#include "config/settings.h"

namespace gannet::config {

// Checks that the offload settings fit the ZeRO stage, and refuses the ZeRO features that Gannet
// does not implement.
void check_zero(const Settings& settings, const Document& document);
// Checks the types in data_types and the dynamic loss scale, and that at most one precision section is enabled.
void check_precision(const Settings& settings, const Document& document);
// Checks that each group of optimizer.param_groups has patterns and a unique name, and that the
// config has an optimizer.
void check_param_groups(const Settings& settings, const Document& document, const EffectiveValues& values);
// check_ema: checks that the decay is below 1, and that the block has a decay if it has other keys.
// check_trace: checks that the last step is not before the first.
void check_ema(const Settings& settings, const Document& document);
void check_trace(const Settings& settings, const Document& document);
// Checks dependencies between the activation checkpointing keys.
void check_activations(const ActivationCheckpointing& settings, const Document& document);
// Checks that the n-th name of gannet.activation_checkpointing.recompute is an operator that can be
// recomputed on its own.
void check_recompute(const ActivationCheckpointing& settings, size_t n, const Document& document);
// Checks that a block ("optimizer") with params has a type.
void check_has_type(const PluginChoice& choice, const std::string& block, const Document& document,
                    const EffectiveValues& values);

}  // namespace gannet::config
