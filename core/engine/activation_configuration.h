// From a config to what regions of activation checkpointing do: for an engine's forwards, and for checkpointing::configure.
#pragma once

#include <memory>

#include "activation/configuration.h"
#include "config/document.h"
#include "engine/impl.h"

namespace gannet {

/// Of an engine's config; null where it says nothing of regions. What it opens outlives the engine, as losses that the program
/// holds may.
std::shared_ptr<const activation::Configuration> configuration_of(EngineBase::Impl& impl, const config::Document& document);

}  // namespace gannet
