// The watch's service thread: passes the ranks' messages to rank 0, whose referee judges them
// (referee.h), and distributes its verdict.
#include <fcntl.h>
#include <gannet/log.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <gannet/sdk_threads.hpp>
#include <random>

#include "base/format.h"
#include "base/text.h"
#include "control/rendezvous.h"
#include "control/watch.h"
#include "control/watch_active.h"
#include "control/watch_rhythm.h"

namespace gannet::control {
namespace {

using std::chrono::steady_clock;

constexpr milliseconds kTick{100};        // the longest delay of events that do not wake the service thread
constexpr uint32_t kFewRanks = 64;        // worlds up to this size receive each call of rank 0, larger ones only with its beats
constexpr milliseconds kLongWait{1'000};  // waits longer than this are reported to rank 0
constexpr milliseconds kConnect{30'000};
constexpr milliseconds kAbort{300};  // from the verdict to the abort of the collectives in flight

std::string random_token() {
  std::random_device device;
  std::string token;
  for (int i = 0; i < 4; ++i) token += std::to_string(device());
  return token;
}

std::string text_of(ErrorCode code) { return std::to_string(static_cast<int>(code)); }

}  // namespace

Watch::Watch(Store& store, const Options& options)
    : rank_(options.rank),
      size_(options.size),
      deadline_(options.deadline),
      report_every_(options.report_every),
      process_(getpid()),
      place_(place_of(CallProgress::kBefore, {})),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      rank_zero_place_(place_) {
  const auto now = steady_clock::now();
  heard_ = now;
  if (rank_ == 0) {
    listener_ = listen_on(0);
    fcntl(listener_.get(), F_SETFL, fcntl(listener_.get(), F_GETFL) | O_NONBLOCK);
    token_ = random_token();
    referee_.emplace(size_, kRhythm, now, options.hosts);
    store.set("watch", formatted("{} {} {}", token_, port_of(listener_), options.host));
  } else {
    const auto published = split(store.get("watch"), ' ');
    token_ = published.at(0);
    const std::string host = published.size() > 2 ? published[2] : options.host;
    std::string reason;
    Socket socket =
        connect_to(host, static_cast<uint16_t>(std::stoi(published.at(1))), static_cast<int>(kConnect.count()), reason);
    if (socket.get() < 0)
      throw Error(ErrorCode::kUnavailable,
                  formatted("rank {} cannot reach the watch of rank 0 at {}:{}: {}", rank_, host, published[1], reason),
                  "ranks connect to one another on free ports: see whether a firewall is between their machines");
    peers_.push_back({Channel(std::move(socket)), 0});
    peers_.front().channel.send({"hello", token_, std::to_string(rank_)});
  }
  sdk::without_signals([this] {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "gannet-watch");
      serve();
    });
  });
  if (rank_ == 0) wait_for_all();
}

// The address of rank 0's watch is in the store that rank 0 serves, so rank 0 continues (and may
// exit) only after all ranks have read it and connected.
void Watch::wait_for_all() {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, kConnect, [this] { return connected_.size() + 1 == size_; })) return;
  std::vector<uint32_t> missing;
  for (uint32_t rank = 1; rank < size_; ++rank)
    if (!connected_.count(rank)) missing.push_back(rank);
  lock.unlock();
  end_thread();
  throw Error(
      ErrorCode::kTimeout,
      formatted("{} did not connect to the watch of rank 0 within 30 s, though at the rendezvous before", name_ranks(missing)),
      "see how those processes ended, and whether a firewall is between their machines");
}

void Watch::end_thread() {
  stop_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
}

Watch::~Watch() {
  goodbye();
  end_thread();
}

void Watch::serve() {
  std::vector<pollfd> waiting;
  for (bool last = false; !last;) {
    waiting.assign({{wake_.get(), POLLIN, 0}});
    if (listener_.get() >= 0) waiting.push_back({listener_.get(), POLLIN, 0});
    {
      std::lock_guard lock(mutex_);  // other threads send on this channel as well
      for (const Peer& peer : peers_)
        if (!peer.channel.is_closed())
          waiting.push_back(
              {peer.channel.descriptor(), static_cast<short>(peer.channel.has_unsent() ? POLLIN | POLLOUT : POLLIN), 0});
    }
    ::poll(waiting.data(), waiting.size(), static_cast<int>(kTick.count()));
    uint64_t count;
    [[maybe_unused]] const ssize_t drained = ::read(wake_.get(), &count, sizeof count);

    const auto now = steady_clock::now();
    look_at_waits(now);
    std::vector<Message> own;
    bool ends_soon;  // if so, all of this rank's calls are in `own`
    {
      std::lock_guard lock(mutex_);
      if (rank_ == 0) own.swap(outbox_);
      last = over_ || stop_;
      ends_soon = ends_soon_;
    }
    if (rank_ == 0) {
      as_rank_zero(own, now);
      if (ends_soon && !referee_->is_followed(0, now)) end_now();
    } else {
      as_other_rank(now);
    }

    std::function<void()> abort;
    {
      std::lock_guard lock(mutex_);
      if (verdict_ && !aborted_ && now - verdict_at_ >= kAbort) {
        aborted_ = true;
        abort = abort_;
      }
    }
    // Called without the lock: abort() ends the collectives in flight, and the threads in them then
    // take the lock.
    if (abort) abort();
  }
  std::lock_guard lock(mutex_);
  over_ = true;
  stop_ = true;
  changed_.notify_all();
}

// Reports long waits to rank 0. If rank 0 is silent, this rank logs the wait itself and issues the
// verdict after the deadline.
void Watch::look_at_waits(Instant now) {
  std::vector<std::string> lines;
  std::optional<Verdict> late;
  {
    std::lock_guard lock(mutex_);
    const milliseconds report_every = report_every_, deadline = deadline_;
    const auto silent_for = std::chrono::duration_cast<milliseconds>(now - heard_);
    for (ActiveCall& active : active_) {
      const int64_t since = active.waiting_since;
      const milliseconds waited(since == 0 ? 0 : in_ms(now) - since);
      if (active.told && since == 0) {
        active.told = false;
        post({"resume", active.call.group}, false);
      }
      if (since == 0 || waited < std::min(kLongWait, report_every / 2)) continue;
      if (!active.told) {
        active.told = true;
        post({"wait", active.call.group, std::to_string(waited.count()), std::to_string(deadline.count())}, false);
      }
      if (rank_ == 0 || rank_zero_ != kRuns || silent_for < kRhythm.silence) continue;
      const std::string where = formatted(
          "rank 0, last seen {}, has given no sign of life for {} s: the process is stopped, or its machine is out of reach or "
          "overloaded",
          rank_zero_place_, silent_for.count() / 1000);
      const std::string lasted = formatted("{} s", waited.count() / 1000);
      if (waited >= deadline + kBeat) {  // a running rank 0 would have issued a verdict by now
        late = Verdict{ErrorCode::kTimeout,
                       formatted("rank 0 is late: rank {} has waited in {} for {}, the deadline; {}", rank_, active.call.text(),
                                 lasted, where),
                       "see what keeps it; \"gannet\": {\"deadline_seconds\": ...} in the config allows more time"};
      } else if (waited >= report_every * (active.reports + 1)) {
        active.reports = static_cast<int>(waited / report_every);
        lines.push_back(
            formatted("waiting in {} ({} of {} s) for rank 0: {}", active.call.text(), lasted, deadline.count() / 1000, where));
      }
    }
  }
  for (const auto& line : lines) log_info(line);
  if (late) settle(*late);
}

void Watch::settle(const Verdict& verdict) {
  std::lock_guard lock(mutex_);
  if (verdict_) return;
  verdict_ = verdict;
  verdict_at_ = steady_clock::now();
  has_verdict_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void Watch::end_now() {
  std::lock_guard lock(mutex_);
  ends_soon_ = false;
  changed_.notify_all();
}

// ---- Rank 0 -------------------------------------------------------------------------------------------------------------

void Watch::as_rank_zero(const std::vector<Message>& own, Instant now) {
  referee_->set_report_every(report_every_);
  std::string here;
  bool leaves;
  {
    std::lock_guard lock(mutex_);
    here = place_;
    leaves = over_;
  }
  const bool beats = now >= next_beat_ || (size_ <= kFewRanks && here != told_place_);
  told_place_ = here;
  if (beats) next_beat_ = now + kBeat;
  referee_->beat(0, now);
  for (const Message& message : own) apply(0, message, now);
  for (Socket arrived;
       (arrived = Socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK))).get() >= 0;) {
    peers_.push_back({Channel(std::move(arrived)), -1});
  }
  for (Peer& peer : peers_) listen_to(peer, now);
  const auto reports = referee_->look(now);
  const auto& verdict = referee_->verdict();
  const bool says_verdict = verdict && !has_verdict_;
  const auto grants = referee_->take_granted();
  for (Peer& peer : peers_) {
    if (peer.rank < 0) continue;
    if (says_verdict) peer.channel.send({"verdict", text_of(verdict->code), verdict->sentence, verdict->next_step});
    for (const Report& report : reports)
      if (std::find(report.ranks.begin(), report.ranks.end(), static_cast<uint32_t>(peer.rank)) != report.ranks.end())
        peer.channel.send({"report", report.line});
    for (const auto& grant : grants)
      if (grant.rank == static_cast<uint32_t>(peer.rank))
        peer.channel.send({"granted", grant.group, std::to_string(grant.sequence)});
    if (beats && referee_->runs(static_cast<uint32_t>(peer.rank), now)) peer.channel.send({"beat", here});
    if (leaves) peer.channel.send({"goodbye", here});
    peer.channel.flush();
  }
  std::erase_if(peers_, [](const Peer& peer) { return peer.channel.is_closed(); });
  for (const auto& grant : grants)
    if (grant.rank == 0) grant_call(grant.group, grant.sequence);
  // Only now may this rank's threads throw and end the process, since the verdict has been sent to
  // the other ranks.
  if (says_verdict) settle(*verdict);
  for (const Report& report : reports)
    if (std::find(report.ranks.begin(), report.ranks.end(), 0u) != report.ranks.end()) log_info(report.line);
}

void Watch::listen_to(Peer& peer, Instant now) {
  for (const Message& message : peer.channel.receive()) {
    if (peer.rank >= 0) {
      apply(static_cast<uint32_t>(peer.rank), message, now);
    } else if (message.size() == 3 && message[0] == "hello" && message[1] == token_) {
      peer.rank = std::stoi(message[2]);
      {
        std::lock_guard lock(mutex_);
        connected_.insert(static_cast<uint32_t>(peer.rank));
      }
      changed_.notify_all();
      referee_->beat(static_cast<uint32_t>(peer.rank), now);
    } else {
      return;  // not a rank of this world: ignored, and disconnected when the world ends
    }
  }
  if (peer.channel.is_closed() && peer.rank >= 0) referee_->end(static_cast<uint32_t>(peer.rank), /*orderly=*/false, now);
}

void Watch::apply(uint32_t rank, const Message& message, Instant now) {
  const std::string& kind = message[0];
  if (kind == "group") {
    std::vector<uint32_t> members;
    for (size_t i = 2; i < message.size(); ++i) members.push_back(static_cast<uint32_t>(std::stoul(message[i])));
    referee_->group(message[1], members);
  } else if (kind == "enter") {
    referee_->enter(rank,
                    {message[1], std::stoull(message[2]), message[3], std::stoll(message[4]), message[5], std::stoll(message[7]),
                     std::stoull(message[8])},
                    message[6] == "asks", now);
  } else if (kind == "facts") {
    referee_->facts(rank, message[1], std::stoll(message[2]), message[3]);
  } else if (kind == "leave") {
    referee_->leave(rank, message[1], message[2] == "failed");
  } else if (kind == "wait") {
    referee_->wait(rank, message[1], now - milliseconds(std::stoll(message[2])), milliseconds(std::stoll(message[3])));
  } else if (kind == "resume") {
    referee_->resume(rank, message[1]);
  } else if (kind == "goodbye") {
    referee_->end(rank, /*orderly=*/true, now);
  } else if (kind == "fail") {
    referee_->fail(rank, message[1]);
  } else if (kind == "abandon") {
    referee_->abandon(rank, message[1], message[2], now);
  }
  referee_->beat(rank, now);
}

}  // namespace gannet::control
