#include "communicator.h"

#include <algorithm>
#include <cstdlib>
#include <gannet/sdk_threads.hpp>
#include <thread>
#include <utility>

namespace gannet_nccl {

using gannet::sdk::Failure;
using namespace std::chrono_literals;

namespace {

constexpr auto kLeave = 5s;  // how long a rank waits for the others to end a communicator

// Advice to the user about an error of the library.
std::string next_step(Result result, const std::string& logged) {
  if (logged.find("uplicate GPU") != std::string::npos)
    return ": two ranks of a host have the same GPU, which this library refuses: start at most one rank for each GPU, or set "
           "\"comm\": {\"type\": \"gloo\"}, which moves tensors through the host's memory";
  switch (result) {
    case kInvalidUsage:
    case kInvalidArgument:
      return ": set NCCL_DEBUG=WARN to see what it refuses";
    case kSystemError:
      return ": set NCCL_DEBUG=INFO to see the interface and the call; " + how_the_interface_is_chosen();
    default:
      return ": set NCCL_DEBUG=INFO to see what failed";
  }
}

}  // namespace

std::string how_the_interface_is_chosen() {
  const char* const given = std::getenv("NCCL_SOCKET_IFNAME");
  return std::string("NCCL_SOCKET_IFNAME, which is ") + (given ? "'" + std::string(given) + "'" : "not set") +
         ", chooses the interface (as 'eth0')";
}

std::string Communicator::last_logged(Comm comm) const {
  const char* const said = comm && library_.get_last_error ? library_.get_last_error(comm) : nullptr;
  std::string text = said ? said : "";
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

Failure Communicator::failure_of(const char* function, Result result, Comm comm) const {
  std::string text = "comm plugin 'nccl', " + who_ + ": " + function + ": ";
  text += result == kRemoteError ? "another rank has ended, or its connection is lost" : library_.get_error_string(result);
  const std::string logged = last_logged(comm);
  if (!logged.empty()) text += " (" + logged + ")";
  const bool is_lost = result == kRemoteError;
  return {is_lost                                                 ? GANNET_PEER_LOST
          : result == kInvalidUsage || result == kInvalidArgument ? GANNET_INVALID_ARGUMENT
                                                                  : GANNET_IO_ERROR,  // the network or the device
          text + (is_lost ? "" : next_step(result, logged))};
}

Communicator::Communicator(const Library& library, const UniqueId& id, int rank, int size, std::string who,
                           Clock::time_point deadline, const std::atomic<bool>& is_aborted)
    : library_(library), who_(std::move(who)), is_aborted_(is_aborted) {
  Config config;
  Result result;
  {
    const gannet::sdk::BlockSignals blocked;  // the library starts threads
    const std::lock_guard lock(mutex_);
    result = library_.init_rank_config(&comm_, size, id, rank, &config);
  }
  begin("ncclCommInitRankConfig", result, deadline);
}

Communicator::Communicator(Communicator& of, int rank, std::string who, Clock::time_point deadline)
    : library_(of.library_), who_(std::move(who)), is_aborted_(of.is_aborted_) {
  Config config;
  Result result;
  {
    const gannet::sdk::BlockSignals blocked;
    const std::scoped_lock lock(mutex_, of.mutex_);
    if (!of.comm_) throw *of.failure_;
    result = library_.split(of.comm_, 0, rank, &comm_, &config);
  }
  of.finish("ncclCommSplit", result, deadline);
  begin("ncclCommSplit", kInProgress, deadline);
}

// Waits until the communicator is made. The destructor of an object that a constructor throws out of
// does not run, so this frees what was made.
void Communicator::begin(const char* function, Result result, Clock::time_point deadline) {
  try {
    finish(function, result, deadline);
  } catch (const Failure& failure) {
    abort(failure);
    throw;
  }
}

Communicator::~Communicator() {
  Comm comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    comm = comm_;
  }
  if (!comm) return;
  try {
    Result result;
    {
      const std::lock_guard lock(mutex_);
      result = library_.finalize(comm);
    }
    finish("ncclCommFinalize", result, Clock::now() + kLeave);
    const std::lock_guard lock(mutex_);
    if (comm_) library_.destroy(std::exchange(comm_, nullptr));
  } catch (const Failure& failure) {  // a rank has not come to end it
    abort(failure);
  }
}

// Polls until the library has done the call.
void Communicator::finish(const char* function, Result result, Clock::time_point deadline) {
  for (auto nap = 10us; result == kInProgress; nap = std::min<std::chrono::microseconds>(2 * nap, 2ms)) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) throw *failure_;
      if (is_aborted_)
        throw Failure(GANNET_PEER_LOST, "comm plugin 'nccl', " + who_ + ": " + function + " was aborted by this rank");
      if (!comm_) throw Failure(GANNET_INTERNAL, "comm plugin 'nccl', " + who_ + ": " + function + " made no communicator");
      const Result asked = library_.get_async_error(comm_, &result);
      if (asked != kSuccess) throw failure_of("ncclCommGetAsyncError", asked, comm_);
    }
    if (result != kInProgress) break;
    if (Clock::now() >= deadline) {
      const std::lock_guard lock(mutex_);
      const std::string logged = last_logged(comm_);
      throw Failure(GANNET_TIMEOUT, "comm plugin 'nccl', " + who_ + ": " + function + " has not ended in time" +
                                        (logged.empty() ? "" : ", " + logged));
    }
    std::this_thread::sleep_for(nap);
  }
  if (result == kSuccess) return;
  const std::lock_guard lock(mutex_);
  throw failure_of(function, result, comm_);
}

void Communicator::Launch::operator()(const char* function, Result result) const {
  if (result != kSuccess && result != kInProgress) throw communicator_.failure_of(function, result, comm_);
}

void Communicator::launch(const std::function<void(const Launch&)>& calls, Clock::time_point deadline) {
  Result result;
  std::optional<Failure> refused;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw *failure_;
    library_.group_start();
    try {
      calls(Launch(*this, comm_));
    } catch (const Failure& failure) {
      refused = failure;
    }
    result = library_.group_end();
  }
  try {
    if (refused) throw *refused;
    finish("ncclGroupEnd", result, deadline);
  } catch (const Failure& failure) {  // some of the launch may be in flight
    abort(failure);
    throw;
  }
}

void Communicator::abort(const Failure& why) noexcept {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = why;
  if (comm_) library_.abort(std::exchange(comm_, nullptr));
}

std::optional<Failure> Communicator::asynchronous_error() {
  const std::lock_guard lock(mutex_);
  if (failure_ || !comm_) return failure_;
  Result result = kSuccess;
  const Result asked = library_.get_async_error(comm_, &result);
  if (asked != kSuccess) return failure_of("ncclCommGetAsyncError", asked, comm_);
  if (result == kSuccess || result == kInProgress) return std::nullopt;
  return failure_of("a collective in flight", result, comm_);
}

std::optional<Failure> Communicator::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace gannet_nccl
