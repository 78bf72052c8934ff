#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/sample_queue.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "base/format.h"
#include "data/failure.h"

namespace gannet::loading {

struct Queue::State {
  explicit State(int64_t samples) : capacity(samples) {}
  const int64_t capacity;
  mutable std::mutex mutex;  // guards everything below
  // room wakes waiting producers; filled wakes the reader.
  std::condition_variable room, filled;
  std::deque<Any> items;                              // a null item: the end of an epoch
  int64_t waiting = 0;                                // number of items, not counting the ends of epochs
  int64_t first = 0, pushed = 0, taken = 0;           // first: samples before the last seek, which the others include
  bool push_in_epoch = false, take_in_epoch = false;  // whether samples have been pushed (taken) since the last end of an epoch
  // closed: whether close() or fail() was called. reader: whether a loader is attached; had_reader:
  // whether one ever was. interrupted: whether that loader is ending.
  bool closed = false, reader = false, had_reader = false, interrupted = false;
  // The first failure of a producer. pop() throws it once the samples before it have been taken.
  std::exception_ptr error;

  bool refuses() const { return closed || (had_reader && !reader); }
};

Queue::Queue(int64_t capacity) {
  if (capacity < 1) throw Error(ErrorCode::kArgument, formatted("a SampleQueue's capacity must be at least 1, not {}", capacity));
  state_ = std::unique_ptr<State>(new State(capacity));
}

Queue::~Queue() = default;

bool Queue::push(const std::function<Any()>& make, std::optional<Clock::time_point> until) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const auto settled = [&] { return state.refuses() || state.waiting < state.capacity; };
  if (!until) {
    state.room.wait(lock, settled);
  } else if (!settled() && !state.room.wait_until(lock, *until, settled)) {
    return false;
  }
  if (state.refuses()) return false;
  // make() may move the caller's sample, so it runs only when the push can no longer be refused.
  state.items.push_back(make());
  ++state.waiting;
  ++state.pushed;
  state.push_in_epoch = true;
  lock.unlock();
  state.filled.notify_one();
  return true;
}

void Queue::end_epoch() {
  std::lock_guard lock(state_->mutex);
  if (state_->closed || !std::exchange(state_->push_in_epoch, false)) return;
  state_->items.push_back(nullptr);
  state_->filled.notify_all();
}

void Queue::close() {
  std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->filled.notify_all();
  state_->room.notify_all();
}

void Queue::fail(std::exception_ptr error) {
  std::lock_guard lock(state_->mutex);
  if (!state_->error) state_->error = std::move(error);
  state_->closed = true;
  state_->filled.notify_all();
  state_->room.notify_all();
}

Any Queue::pop() {
  constexpr auto kPatience = std::chrono::seconds(10);
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const auto settled = [&] { return state.interrupted || state.closed || !state.items.empty(); };
  for (auto waited = kPatience; !state.filled.wait_for(lock, kPatience, settled); waited += kPatience) {
    const std::string line =
        formatted("the loader has waited {} s for a sample of its queue, which was given {} so far and not closed",
                  waited.count(), state.pushed);
    lock.unlock();
    log_warning(line);
    lock.lock();
  }
  if (state.interrupted) throw Error(ErrorCode::kOrder, "the loader of a SampleQueue is being ended");
  if (state.items.empty()) {
    state.take_in_epoch = false;
    if (!state.error) return nullptr;
    const std::exception_ptr error = state.error;
    const std::string where = formatted("a producer failed after {} samples of the queue", state.taken);
    lock.unlock();
    try {
      std::rethrow_exception(error);
    } catch (...) {
      rethrow_with(where);
    }
  }
  Any item = std::move(state.items.front());
  state.items.pop_front();
  state.take_in_epoch = static_cast<bool>(item);
  if (!item) return item;
  --state.waiting;
  ++state.taken;
  lock.unlock();
  state.room.notify_one();
  return item;
}

int64_t Queue::position() const {
  std::lock_guard lock(state_->mutex);
  return state_->pushed;
}

int64_t Queue::size() const {
  std::lock_guard lock(state_->mutex);
  return state_->waiting;
}

int64_t Queue::capacity() const { return state_->capacity; }

Value Queue::cursor() const {
  std::lock_guard lock(state_->mutex);
  return Dict{{"samples", state_->taken}, {"in_epoch", state_->take_in_epoch}};
}

void Queue::attach_reader() {
  std::lock_guard lock(state_->mutex);
  if (state_->reader)
    throw Error(ErrorCode::kOrder, "a SampleQueue was given to a second loader while the first one lives",
                "give each loader a queue of its own");
  state_->reader = state_->had_reader = true;
}

void Queue::detach_reader() {
  std::lock_guard lock(state_->mutex);
  state_->reader = false;
  state_->room.notify_all();
}

void Queue::seek(const Value& where) {
  const int64_t sample = where.at("samples").as_int();
  const bool in_epoch = where.at("in_epoch").as_bool();
  State& state = *state_;
  std::lock_guard lock(state.mutex);
  const bool used = state.pushed > state.first;
  if (used && (sample != state.taken || in_epoch != state.take_in_epoch))
    throw Error(
        ErrorCode::kOrder,
        formatted("the queue is to resume at sample {}, but {} samples were pushed already", sample, state.pushed - state.first),
        "load the checkpoint before the producers start, and push from queue.position() on");
  if (used) return;
  state.first = state.pushed = state.taken = sample;
  state.push_in_epoch = state.take_in_epoch = in_epoch;
}

void Queue::interrupt(bool on) {
  std::lock_guard lock(state_->mutex);
  state_->interrupted = on;
  state_->filled.notify_all();
}

}  // namespace gannet::loading
