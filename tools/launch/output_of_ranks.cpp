// Copies the ranks' output to gannet run's own stdout and stderr: in turns, in parts, and without
// delaying a signal or the detection of a rank's end.
#include <signal.h>
#include <unistd.h>

#include "launch/attempt.h"
#include "launch/descendants.h"

namespace gannet::launch {

bool Session::next(Signal& signal) {
  if (signals.next(signal)) return true;
  while (head && head->next(signal))
    if (signal.implied || signals.takes_from_head(signal.number)) return true;
  if (!signals.is_abandoned()) return false;
  end_all_below({}, mark);
  _exit(128 + SIGKILL);
}

void Session::wait(std::vector<pollfd> waiting, std::chrono::milliseconds time) {
  signals.add_to(waiting);
  output.add_to(waiting);
  if (head) time = head->prepare_to_wait(output, waiting, time);
  poll(waiting.data(), waiting.size(), static_cast<int>(time.count()));
  if (head) head->take();
}

// A full pipe must never block a rank that is shutting down, because a stop was forwarded or another
// rank failed: it still has to write its checkpoint. Output that does not fit is dropped.
bool Attempt::must_not_wait() const { return stopped_by_ != 0 || first_ || forwarded_.count(SIGUSR1) != 0; }

bool Attempt::has_room(const Rank& rank, int pipe) const {
  return rank.pipes()[pipe] >= 0 && (must_not_wait() || session_.output.has_room(pipe + 1));
}

void Attempt::wait() {
  std::vector<pollfd> waiting;
  for (const auto& rank : ranks_)
    for (const int i : {0, 1})
      if (has_room(*rank, i)) waiting.push_back({rank->pipes()[i], POLLIN, 0});
  session_.wait(std::move(waiting), std::chrono::milliseconds(deadline_ ? 100 : -1));
}

// Reads one part of each pipe. Returns false if nothing was read.
bool Attempt::read_ranks() {
  bool has_read = false;
  session_.output.drop_when_full(must_not_wait());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = *ranks_[(first_to_read_ + i) % ranks_.size()];
    for (const int pipe : {0, 1})
      if (has_room(rank, pipe)) has_read |= rank.read_output(pipe, session_.output);
  }
  ++first_to_read_;
  return has_read;
}

// All ranks have ended, so their pipes hold all remaining output. The number of parts is limited,
// since a process that could not be ended may write forever.
void Attempt::read_what_is_left() {
  for (int part = 0; part < 256; ++part) {
    const bool has_read = read_ranks();
    session_.output.flush();
    bool is_held_up = false;
    for (const auto& rank : ranks_)
      for (const int pipe : {0, 1}) is_held_up |= rank->pipes()[pipe] >= 0 && !has_room(*rank, pipe);
    if (is_held_up) {
      session_.wait({}, std::chrono::milliseconds(-1));
      take_signals();
      --part;
    } else if (!has_read) {
      break;
    }
  }
  for (auto& rank : ranks_) rank->finish_output(session_.output);
}

// `gannet run ... | head`: further output has no reader, but the training must not be lost.
void Attempt::notice_a_lost_reader() {
  if (session_.output.lost_its_reader()) stop_implied("the end of its output's reader");
}

}  // namespace gannet::launch
