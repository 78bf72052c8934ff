#include "runtime.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <gannet/sdk.hpp>
#include <gannet/sdk_threads.hpp>

namespace gannet_mpi {

using gannet::sdk::Failure;
using std::chrono::microseconds;

namespace {

const char* name_of_level(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

// MPI_Init_thread, or the program's own initialization with a sufficient level of threads.
void initialize() {
  int is_initialized = 0, is_finalized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (is_finalized)
    throw Failure(GANNET_INVALID_ARGUMENT, "comm plugin 'mpi': the program has called MPI_Finalize already; train before it");
  if (is_initialized) {
    // The program calls MPI too, on other threads than this plugin's.
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE)
      throw Failure(GANNET_UNSUPPORTED,
                    std::string("comm plugin 'mpi' calls MPI on a thread of its own, and the program initialized MPI with ") +
                        name_of_level(level) + ": call MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided)");
    return;
  }
  require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
  if (level < MPI_THREAD_SERIALIZED)
    throw Failure(GANNET_UNSUPPORTED, std::string("comm plugin 'mpi': this MPI library provides ") + name_of_level(level) +
                                          " and MPI_THREAD_SERIALIZED is needed: use a library that is built with threads");
}

}  // namespace

void require(int code, const std::string& doing) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Failure(GANNET_PEER_LOST, doing + " failed in MPI: " + std::string(text, static_cast<size_t>(length)));
}

bool Pending::wait(uint64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this] { return is_over_; })) return false;
  if (failure_) std::rethrow_exception(failure_);
  return true;
}

bool Pending::is_over() {
  const std::lock_guard lock(mutex_);
  return is_over_;
}

void Pending::finish(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    failure_ = std::move(failure);
    is_over_ = true;
  }
  changed_.notify_all();
}

Runtime& Runtime::get() {
  static Runtime& only = *new Runtime;
  return only;
}

Runtime::Runtime() {
  int was_initialized = 0;
  MPI_Initialized(&was_initialized);
  initialize();
  const gannet::sdk::BlockSignals blocked;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "gannet-mpi");
    serve();
  });
  if (was_initialized) {
    thread_.detach();  // the program finalizes, when nothing of a Comm is left
    return;
  }
  std::atexit([] {
    Runtime& runtime = get();
    {
      const std::lock_guard lock(runtime.mutex_);
      runtime.stop_ = true;
    }
    runtime.changed_.notify_all();
    runtime.thread_.join();
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    // With operations in flight MPI_Finalize would wait for ranks that may be lost.
    if (!is_finalized && runtime.in_flight_.empty() && runtime.abandoned_.empty()) MPI_Finalize();
  });
}

uint64_t Runtime::new_owner() {
  const std::lock_guard lock(mutex_);
  return ++owners_;
}

std::shared_ptr<Pending> Runtime::start(uint64_t owner, const std::string& doing, std::function<Requests()> issue,
                                        std::function<void()> then) {
  auto pending = std::make_shared<Pending>();
  pending->owner_ = owner;
  pending->doing_ = doing;
  pending->issue_ = std::move(issue);
  pending->then_ = std::move(then);
  {
    const std::lock_guard lock(mutex_);
    if (std::find(aborted_.begin(), aborted_.end(), owner) != aborted_.end())
      throw Failure(GANNET_PEER_LOST, doing + " cannot start: the Comm was aborted");
    queued_.push_back(pending);
  }
  changed_.notify_one();
  return pending;
}

void Runtime::run(const std::string& doing, uint64_t timeout_ms, std::function<void()> body) {
  const auto done = start(0, doing, [body = std::move(body)] {
    body();
    return Requests();
  });
  if (!done->wait(timeout_ms))
    throw Failure(GANNET_TIMEOUT,
                  doing + " is not over within " + std::to_string(timeout_ms / 1000) + " s: a rank is late, or has ended");
}

void Runtime::abort(uint64_t owner) {
  std::vector<std::shared_ptr<Pending>> ended;
  {
    const std::lock_guard lock(mutex_);
    aborted_.push_back(owner);
    for (const auto& pending : queued_)
      if (pending->owner_ == owner) ended.push_back(pending);
  }
  changed_.notify_one();
  for (const auto& pending : ended)
    pending->finish(std::make_exception_ptr(Failure(GANNET_PEER_LOST, pending->doing_ + " was aborted by this rank")));
}

bool Runtime::advance(Pending& pending) {
  try {
    int all_complete = 1;
    if (!pending.requests_.empty())
      require(
          MPI_Testall(static_cast<int>(pending.requests_.size()), pending.requests_.data(), &all_complete, MPI_STATUSES_IGNORE),
          pending.doing_);
    if (!all_complete) return false;
    if (pending.then_) pending.then_();
    pending.finish(nullptr);
  } catch (...) {
    pending.finish(std::current_exception());
  }
  return true;
}

// MPI moves data only inside its calls, so the thread keeps testing what is in flight: at once for
// a short while after any progress, then with pauses that leave the processor to others.
void Runtime::serve() {
  int idle_rounds = 0;
  for (;;) {
    std::deque<std::shared_ptr<Pending>> fresh;
    std::vector<uint64_t> aborted;
    {
      std::unique_lock lock(mutex_);
      const auto is_wanted = [this] { return stop_ || !queued_.empty(); };
      if (in_flight_.empty())
        changed_.wait(lock, is_wanted);
      else if (idle_rounds > 200)
        changed_.wait_for(lock, microseconds(idle_rounds > 2000 ? 500 : 50), is_wanted);
      if (stop_ && queued_.empty()) return;
      fresh.swap(queued_);
      aborted = aborted_;
    }
    for (auto& pending : fresh) {
      idle_rounds = 0;
      if (pending->is_over()) continue;  // aborted
      try {
        pending->requests_ = pending->issue_();
        in_flight_.push_back(pending);
      } catch (...) {
        pending->finish(std::current_exception());
      }
    }
    bool moved = false;
    for (auto one = in_flight_.begin(); one != in_flight_.end();) {
      Pending& pending = **one;
      if (std::find(aborted.begin(), aborted.end(), pending.owner_) != aborted.end()) {
        pending.finish(std::make_exception_ptr(Failure(GANNET_PEER_LOST, pending.doing_ + " was aborted by this rank")));
        abandoned_.splice(abandoned_.end(), in_flight_, one++);
      } else if (advance(pending)) {
        one = in_flight_.erase(one);
        moved = true;
      } else {
        ++one;
      }
    }
    idle_rounds = moved ? 0 : idle_rounds + 1;
  }
}

}  // namespace gannet_mpi
