// Runs `gannet run` as two processes, so that the end of either, kill -9 included, leaves no
// process running.
//
//   the front process  has the process id that a shell and a batch system know; it relays signals and waits
//   the launcher       its child, in its own process group: starts the ranks and supervises them
//
// Both adopt orphans below them (PR_SET_CHILD_SUBREAPER). If the launcher is killed, the front
// process ends all processes that it adopts. If the front process is killed, the launcher sees
// their channel close and ends all processes below itself.
#pragma once

#include <functional>
#include <string>

namespace gannet::launch {

// Runs `launcher` in the child and returns its result; its exceptions (StartError, Error) are
// rethrown here. The launcher gets its end of the channel, for launch/signals.h. Call this from a
// process without other threads.
//
// `lifeline`: a descriptor whose peer closes once the launch is unwanted (an agent's connection).
// The launcher reads it; the front process then sends SIGCONT, so that a stopped launcher notices.
int run_guarded(const std::string& mark, const std::function<int(int channel)>& launcher, int lifeline = -1);

}  // namespace gannet::launch
