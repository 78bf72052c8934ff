// Rules that more than one key takes part in. Each throws Error on the first that does not hold, with the place of a key.
#pragma once

#include "config/effective.h"
#include "config/settings.h"

namespace gannet::config {

// Offload by stage, and what of ZeRO's sections Gannet refuses.
void check_zero(const Settings& settings, const Document& document);
// fp16 or bf16, the accumulation type, the dynamic loss scale.
void check_precision(const Settings& settings, const Document& document);
// Each group of optimizer.param_groups has patterns and a name of its own, and there is an optimizer.
void check_param_groups(const Settings& settings, const Document& document, const EffectiveValues& values);
// The last step is not before the first.
void check_ema(const Settings& settings, const Document& document);
void check_trace(const Settings& settings, const Document& document);
// What of activation checkpointing needs what.
void check_activations(const ActivationCheckpointing& settings, const Document& document);
// The n-th name of gannet.activation_checkpointing.recompute is an operator that can be computed again by itself.
void check_recompute(const ActivationCheckpointing& settings, size_t n, const Document& document);
// A block ("optimizer") with params has a type.
void check_has_type(const PluginChoice& choice, const std::string& block, const Document& document,
                    const EffectiveValues& values);

}  // namespace gannet::config
