// Builds the configuration of activation checkpointing from a config, for an engine's forwards and
// for checkpointing::configure.
#pragma once

#include <memory>

#include "activation/configuration.h"
#include "activation/saved_store.h"
#include "config/document.h"
#include "engine/impl.h"

namespace gannet {

/// From an engine's config; null if it does not configure regions. What it opens outlives the
/// engine, because losses that the program holds may do so.
std::shared_ptr<const activation::Configuration> configuration_of(EngineBase::Impl& impl, const config::Document& document);

/// Where an engine's forwards keep what operators save for backward; null: it stays in place.
/// Throws Error(kUnsupported) in a process with another autograd engine. The store may outlive the
/// engine.
std::shared_ptr<activation::SavedStore> saved_store_of(EngineBase::Impl& impl, const config::Document& document);

}  // namespace gannet
