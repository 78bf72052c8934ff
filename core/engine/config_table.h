// The effective config of an engine as text, for the log and for the program.
#pragma once

#include <gannet/engine.h>

namespace gannet {

/// Logs the config with the origin of each value; most defaults only with dump_state. Logs nothing
/// if the table is the same as the previous engine's, as in a loop over seeds.
void log_config(const EngineBase::Impl& impl);

}  // namespace gannet
