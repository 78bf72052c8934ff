// The watch's service thread on every rank except 0: sends beats, receives messages from rank 0,
// and issues the verdict if rank 0 ends.
#include <gannet/log.h>

#include <algorithm>

#include "base/format.h"
#include "control/watch.h"
#include "control/watch_active.h"
#include "control/watch_rhythm.h"

namespace gannet::control {

void Watch::as_other_rank(Instant now) {
  std::vector<Message> heard;
  bool closed;
  {
    std::lock_guard lock(mutex_);
    Channel& channel = peers_.front().channel;
    flush();  // under the lock, so that messages of concurrent calls are sent after these
    if (now >= next_beat_) {
      next_beat_ = now + kBeat;
      channel.send({"beat"});
    }
    channel.flush();
    heard = channel.receive();
    closed = channel.is_closed();
  }
  for (const Message& message : heard) {
    heard_ = now;
    if (message[0] == "beat") {
      rank_zero_place_ = message.at(1);
    } else if (message[0] == "report") {
      log_info(message.at(1));
    } else if (message[0] == "verdict") {
      settle({static_cast<ErrorCode>(std::stoi(message.at(1))), message.at(2), message.at(3)});
    } else if (message[0] == "goodbye") {
      rank_zero_place_ = message.at(1);
      lose_rank_zero(kGone, now);
    } else if (message[0] == "granted") {
      grant_call(message.at(1), std::stoull(message.at(2)));
    }
  }
  if (closed && rank_zero_ == kRuns) lose_rank_zero(kDied, now);
  if (rank_zero_ != kRuns) judge_rank_zero(now);
}

void Watch::lose_rank_zero(RankZero how, Instant now) {
  std::lock_guard lock(mutex_);
  rank_zero_ = how;
  rank_zero_ended_ = now;
  changed_.notify_all();
}

void Watch::grant_call(const std::string& group, uint64_t sequence) {
  std::lock_guard lock(mutex_);
  for (ActiveCall& active : active_)
    if (active.call.group == group && active.call.sequence == sequence) active.granted = true;
  changed_.notify_all();
}

// Issues the verdict if rank 0 has ended and is still needed. Rank 0 judges the end of other ranks;
// every other rank judges the end of rank 0.
void Watch::judge_rank_zero(Instant now) {
  std::string here;
  {
    std::lock_guard lock(mutex_);
    if (verdict_ || over_) return;
    here = formatted("; rank {} is {}", rank_, place_);
    if (rank_zero_ == kGone) {
      const bool needed = std::any_of(active_.begin(), active_.end(), [&](const ActiveCall& active) {
        return active.with_rank_zero && (active.entered > rank_zero_ended_ || active.waiting_since != 0);
      });
      if (!needed || now - rank_zero_ended_ < kRhythm.departure_settles) return;
    }
  }
  if (rank_zero_ == kDied && now - rank_zero_ended_ < kRhythm.death_settles) return;
  settle(
      {ErrorCode::kPeerLost,
       std::string("rank 0 has ") + (rank_zero_ == kDied ? "died; it was last seen " : "ended ") + rank_zero_place_ + here,
       rank_zero_ == kDied
           ? "see the end of that rank's own output, and whether a signal or the lack of memory ended it"
           : "all ranks make the same calls and end together: see why that rank had nothing more to do, or what error it threw"});
}

}  // namespace gannet::control
