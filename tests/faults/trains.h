// The body `trains` of trains.cpp, which faults_test.cpp, drive_test.cpp and matrix.py run on every
// rank.
//
// It trains 6 steps; the rank VICTIM meets FAULT in phase WHERE of step 3:
//   FAULT     kill, stop, return (an exception of the program's own), io (what GANNET_FAULT says begins), or empty
//   WHERE     forward, backward, reduce (gradients are on their way), update (before step()), step (at its end,
//             where the next rate is asked for), save, load, barrier
//   STAGE     of ZeRO; TIER: where states and, at stage 3, parameters are; DRIVE: the tier's folder
//   FOLDER    for checkpoints: of step 2 and every later one where WHERE is save or load, or SAVES is set
//   RESUME    resumes from the newest one
// In the end it prints "parameters <hash>"; a rank that gets an error prints how long after the fault.
#pragma once

#include <string>

namespace gannet::test {

void fault();  // FAULT, now

// Seconds that a rank printed after "told after"; a very long time if it printed none.
double seconds_to_the_error(const std::string& output);

}  // namespace gannet::test
