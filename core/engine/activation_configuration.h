// From a config to what regions of activation checkpointing do: for an engine's forwards, and for checkpointing::configure.
#pragma once

#include <memory>

#include "activation/configuration.h"
#include "activation/saved_store.h"
#include "config/document.h"
#include "engine/impl.h"

namespace gannet {

/// Of an engine's config; null where it says nothing of regions. What it opens outlives the engine, as losses that the program
/// holds may.
std::shared_ptr<const activation::Configuration> configuration_of(EngineBase::Impl& impl, const config::Document& document);

/// Where an engine's forwards keep what operators save for backward; null: where it is. Throws Error(kUnsupported) in a process
/// with another autograd engine. It outlives the engine likewise.
std::shared_ptr<activation::SavedStore> saved_store_of(EngineBase::Impl& impl, const config::Document& document);

}  // namespace gannet
