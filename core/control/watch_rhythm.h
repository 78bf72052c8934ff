// Intervals of the ranks' beats, and how long silence is tolerated.
#pragma once

#include "control/referee.h"
#include "control/watch.h"

namespace gannet::control {

inline constexpr milliseconds kBeat{1'000};
inline constexpr Referee::Rhythm kRhythm{};

}  // namespace gannet::control
