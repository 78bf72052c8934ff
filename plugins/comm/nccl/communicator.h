// A communicator of the library that never blocks a thread: its calls are polled, and any thread can
// abort it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <gannet/sdk_errors.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "library.h"

namespace gannet_nccl {

// "NCCL_SOCKET_IFNAME, which is 'eth1', chooses the interface", for errors.
std::string how_the_interface_is_chosen();

class Communicator {
 public:
  using Clock = std::chrono::steady_clock;
  // Called by all ranks of the group. Throws Failure(GANNET_TIMEOUT) if they have not all come by the
  // deadline. `who`: "group 'world' (rank 0 of 2)", for errors.
  // `is_aborted`: set by another thread to end the wait.
  Communicator(const Library& library, const UniqueId& id, int rank, int size, std::string who, Clock::time_point deadline,
               const std::atomic<bool>& is_aborted);
  // The same ranks as `of`, with the connections of their own that `of` has (ncclCommSplit).
  Communicator(Communicator& of, int rank, std::string who, Clock::time_point deadline);
  // Ends the communicator. If it was not aborted, waits a while for the other ranks to end theirs.
  ~Communicator();
  Communicator(const Communicator&) = delete;

  // The calls of one launch, between the library's group_start and group_end.
  class Launch {
   public:
    Launch(Communicator& communicator, Comm comm) : communicator_(communicator), comm_(comm) {}
    const Library* operator->() const { return &communicator_.library_; }
    Comm comm() const { return comm_; }
    // Throws if a call failed.
    void operator()(const char* function, Result result) const;

   private:
    Communicator& communicator_;
    Comm comm_;
  };
  const Library& library() const { return library_; }
  // Throws the reason if the communicator has failed or was aborted.
  void launch(const std::function<void(const Launch&)>& calls, Clock::time_point deadline);

  // Ends what is in flight on the device, whose later waiters get `why`. The first reason counts.
  void abort(const gannet::sdk::Failure& why) noexcept;
  // Asks the library for an error of what is in flight.
  std::optional<gannet::sdk::Failure> asynchronous_error();
  // The reason why it was aborted.
  std::optional<gannet::sdk::Failure> failure();
  void require_intact() {
    if (const auto why = failure()) throw *why;
  }

 private:
  void finish(const char* function, Result result, Clock::time_point deadline);
  void begin(const char* function, Result result, Clock::time_point deadline);
  gannet::sdk::Failure failure_of(const char* function, Result result, Comm comm) const;
  std::string last_logged(Comm comm) const;  // what the library says of its last error; "": nothing

  const Library& library_;
  const std::string who_;
  const std::atomic<bool>& is_aborted_;
  std::mutex mutex_;     // held for each of the library's calls, none of which waits for other ranks
  Comm comm_ = nullptr;  // null once it is aborted
  std::optional<gannet::sdk::Failure> failure_;
};

}  // namespace gannet_nccl
