// The parts of an engine's construction, in their order (initialize.cpp); join.cpp uses some of them again.
#pragma once

#include "engine/impl.h"

namespace gannet {

/// Groups and the store's parameters from the module or from the groups that the program gave (collect.cpp).
void collect_parameters(EngineBase::Impl& impl, const EngineOptions& options);
/// Error(kArgument): two tensors hold one memory, and the flat buffers would take one of them away (shared_memory.cpp).
void refuse_shared_memory(const EngineBase::Impl& impl);
/// Will the run fit? Error(kOutOfMemory) with what would, before anything is allocated (check_fit.cpp).
void check_fit(EngineBase::Impl& impl);
/// To the device; parameters to the training dtype and into the store's memory; rank 0's values everywhere (collect.cpp).
void move_module(EngineBase::Impl& impl);
/// The moving average of the parameters, where the config has one (evaluation.cpp).
void start_average(EngineBase::Impl& impl);
/// Null: gradients are kept in the device's memory.
ParameterStore::GradientMemory gradient_memory(const EngineBase::Impl& impl);
/// Parameters that the program thawed or added are trained from now on (join.cpp).
void join_parameters(EngineBase::Impl& impl, const ParameterStore::Named& added);

}  // namespace gannet
