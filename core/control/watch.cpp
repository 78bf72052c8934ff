// The part of the watch that runs on the calling threads: reports calls of the public API and
// throws verdicts.
#include "control/watch.h"

#include <torch/csrc/autograd/graph_task.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "base/format.h"
#include "base/text.h"
#include "control/watch_active.h"

namespace gannet::control {
namespace {

using std::chrono::steady_clock;

constexpr milliseconds kCallEvery{5};  // calls that keep coming faster than this are reported in batches
constexpr double kCallsInHand = 20;
constexpr milliseconds kExplain{4'000};  // longer than the referee needs for a verdict
constexpr milliseconds kFarewell{500};
constexpr milliseconds kFollow{5'000};  // how long rank 0 waits at its end for ranks that are still finishing the same call
constexpr milliseconds kBeyondDeadline{10'000};  // the Comm's own timeout is a fallback: the verdict comes first

thread_local void* inside = nullptr;  // the ActiveCall of this thread's outermost call

BackwardInfo* carried_here() { return dynamic_cast<BackwardInfo*>(c10::ThreadLocalDebugInfo::get(kBackwardKind)); }

// The ActiveCall that this thread is in: its own call, or the call of the backward whose nodes this
// autograd thread runs.
void* inside_here() {
  if (inside) return inside;
  const BackwardInfo* const info = carried_here();
  return info ? info->call.load() : nullptr;
}

}  // namespace

Watch::Call::Call(Watch* watch, const HostGroup& group, const char* name, int64_t step, const std::string& tag, Begin begin,
                  Facts* facts) {
  if (!watch) return;
  watch->check();
  if (group.size() == 1 || inside_here()) return;
  exceptions_ = std::uncaught_exceptions();
  std::unique_lock lock(watch->mutex_);
  uint64_t& sequence = watch->sequence_of(group);
  ActiveCall& active = watch->active_.emplace_back();
  active.call = {group.name(), ++sequence, name, step, tag};
  if (facts) {
    active.call.set = facts->set_number();
    active.call.facts = facts->hash();
    if (std::string changes = facts->changes(); !changes.empty())
      watch->post({"facts", group.name(), std::to_string(facts->set_number()), std::move(changes)}, false);
  }
  active.with_rank_zero = std::find(group.ranks().begin(), group.ranks().end(), 0u) != group.ranks().end();
  active.entered = steady_clock::now();
  watch->place_ = place_of(CallProgress::kInside, active.call);
  const bool asks = begin == kTogether && (active.with_rank_zero || watch->rank_zero_ == kRuns);
  watch->post({"enter", active.call.group, std::to_string(active.call.sequence), name, std::to_string(step), tag,
               asks ? "asks" : "", std::to_string(active.call.set), std::to_string(active.call.facts)},
              true);
  if (asks) watch->flush();
  lock.unlock();
  watch_ = watch;
  active_ = &active;
  BackwardInfo* const info = torch::autograd::get_current_graph_task_id() >= 0 ? carried_here() : nullptr;
  if (info)
    carry(*info);  // a backward that begins on an autograd thread (EngineBase::scale) may end on another
  else
    inside = &active;
  if (!asks) return;
  try {
    wait_for_all();
  } catch (const Error&) {
    leave(/*failed=*/true);
    throw;
  }
}

void Watch::Call::wait_for_all() {
  watch_->begin_wait();
  std::unique_lock lock(watch_->mutex_);
  const milliseconds limit = watch_->deadline_.load() + kBeyondDeadline;
  const bool ready = watch_->changed_.wait_for(lock, limit, [this] {
    return active_->granted || watch_->verdict_ || watch_->over_ || (watch_->rank_zero_ != kRuns && !active_->with_rank_zero);
  });
  lock.unlock();
  watch_->end_wait();
  watch_->check();
  if (!ready)
    throw Error(ErrorCode::kTimeout,
                formatted("not all ranks came to {} in time, and rank 0 does not say which", active_->call.text()));
}

Watch::Call::~Call() {
  if (active_) leave(failed_ || std::uncaught_exceptions() > exceptions_);
}

void Watch::Call::carry(BackwardInfo& info) {
  if (!active_) return;
  if (carried_) carried_->call = nullptr;
  carried_ = info.shared_from_this();
  info.call = active_;
}

void Watch::Call::leave(bool failed) {
  if (carried_) carried_->call = nullptr;
  if (inside == active_) inside = nullptr;
  std::lock_guard lock(watch_->mutex_);
  watch_->place_ = place_of(failed ? CallProgress::kFailed : CallProgress::kLeft, active_->call);
  watch_->post({"leave", active_->call.group, failed ? "failed" : ""}, false);
  watch_->active_.remove_if([this](const ActiveCall& one) { return &one == active_; });
}

// Requires mutex_. On the first call of a group, sends the group's members to rank 0.
uint64_t& Watch::sequence_of(const HostGroup& group) {
  const auto [sequence, is_new] = sequences_.try_emplace(group.name(), 0);
  if (is_new) {
    Message members{"group", group.name()};
    for (const uint32_t rank : group.ranks()) members.push_back(std::to_string(rank));
    post(std::move(members), false);
  }
  return sequence->second;
}

void Watch::abandon(const HostGroup& group, const std::string& what) {
  if (group.size() == 1) return;
  const std::lock_guard lock(mutex_);
  sequence_of(group);
  place_ = formatted("after it left {}", what);  // what others learn if this process ends now
  post({"abandon", group.name(), what}, false);
  flush();
}

bool Watch::is_inside() { return inside_here() != nullptr; }

// Requires mutex_. A message that is not sent immediately is sent with the next one, or at the next
// tick of the service thread.
void Watch::post(Message message, bool at_once) {
  if (over_) return;
  outbox_.push_back(std::move(message));
  if (!at_once) return;
  const auto now = steady_clock::now();
  calls_in_hand_ =
      std::min(kCallsInHand, calls_in_hand_ + (now - last_call_) / std::chrono::duration<double, std::milli>(kCallEvery));
  last_call_ = now;
  if (calls_in_hand_ < 1) return;
  calls_in_hand_ -= 1;
  flush();
}

// Requires mutex_.
void Watch::flush() {
  if (rank_ == 0) return wake();
  for (const Message& message : std::exchange(outbox_, {})) peers_.front().channel.send(message);
}

void Watch::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void Watch::check() {
  if (!has_verdict_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(mutex_);
  throw Error(verdict_->code, verdict_->sentence, verdict_->next_step);
}

void Watch::explain(const Error& failure) {
  begin_wait();  // marks this rank as waiting, so that the referee sees that it needs the lost rank
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kExplain, [this] { return verdict_.has_value() || over_; }))
    post({"fail", failure.message()}, true);
  end_wait();
  if (verdict_) throw Error(verdict_->code, formatted("{} ({})", verdict_->sentence, failure.message()), verdict_->next_step);
}

milliseconds Watch::patience(milliseconds otherwise) const {
  return inside_here() ? deadline_.load() + kBeyondDeadline : otherwise;
}

void Watch::begin_wait() {
  if (void* const active = inside_here()) static_cast<ActiveCall*>(active)->waiting_since = in_ms(steady_clock::now());
}

void Watch::end_wait() {
  if (void* const active = inside_here()) static_cast<ActiveCall*>(active)->waiting_since = 0;
}

void Watch::on_verdict(std::function<void()> abort) {
  std::lock_guard lock(mutex_);
  abort_ = std::move(abort);
}

void Watch::goodbye() noexcept {
  if (getpid() != process_) return;
  try {
    std::unique_lock lock(mutex_);
    if (over_) return;
    if (rank_ == 0 && !verdict_) {
      ends_soon_ = true;
      wake();
      changed_.wait_for(lock, kFollow, [this] { return !ends_soon_ || over_ || stop_ || verdict_; });
    }
    post({"goodbye", place_}, false);
    over_ = true;
    wake();
    changed_.wait_for(lock, kFarewell, [this] { return outbox_.empty() && stop_.load(); });
  } catch (const std::exception&) {  // out of memory for the message
  }
}

}  // namespace gannet::control
