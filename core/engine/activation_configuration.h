// Builds the configuration of activation checkpointing from a config, for an engine's forwards and
// for checkpointing::configure.
#pragma once

#include <memory>

#include "activation/configuration.h"
#include "activation/saved_store.h"
#include "config/document.h"
#include "engine/impl.h"

namespace gannet {

/// Builds the configuration from an engine's config; null if the config has no settings for regions.
/// The tier that it opens may outlive the engine: losses held by the program may still need it.
std::shared_ptr<const activation::Configuration> configuration_of(EngineBase::Impl& impl, const config::Document& document);

/// Returns the store in which an engine's forwards keep the tensors that operators save for
/// backward; null if they stay in place. Throws Error(kUnsupported) in a process with another
/// autograd engine. The store may outlive the engine.
std::shared_ptr<activation::SavedStore> saved_store_of(EngineBase::Impl& impl, const config::Document& document);

}  // namespace gannet
