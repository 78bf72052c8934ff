// zero::GatheredParameters that are open, and what other calls may not do meanwhile: a guard has values of its own until it ends.
#pragma once

#include <gannet/engine.h>
#include <gannet/error.h>

#include <optional>
#include <string>
#include <vector>

namespace gannet {

struct Guards {
  std::vector<std::string> writing;  // of each guard with write_from: its first parameter
  std::optional<Error> failed;       // of a destructor, which can only log it: the next call of a step throws it
};

/// Error(kOrder): a guard with write_from is open, and what was written under it has not reached the engine.
void refuse_while_written(const EngineBase::Impl& impl, const char* call);
/// The same, and of guards that read where parameters are gathered: they would show values from before the call.
void refuse_while_gathered(const EngineBase::Impl& impl, const char* call);

}  // namespace gannet
