// A group of ranks: its communicator, its queue on the device, and the works that are in flight.
#pragma once

#include <deque>
#include <gannet/sdk_comm.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "communicator.h"
#include "device.h"

namespace gannet_nccl {

// A collective in flight, which the group watches for a timeout.
struct Flight {
  Flight(const Device& device, void* queue, std::string doing) : event(device, queue), doing(std::move(doing)) {}
  const Event event;
  const std::string doing;
  const Communicator::Clock::time_point started = Communicator::Clock::now();
};

class Group {
 public:
  using Failure = gannet::sdk::Failure;
  struct Options {
    Device device;
    std::string name;
    uint32_t rank = 0, size = 1;
    std::chrono::milliseconds timeout{0};
  };
  // `make`: makes the communicator, for several ranks at once, for one rank when a collective needs it.
  Group(const Options& options, std::function<std::shared_ptr<Communicator>()> make);
  ~Group();
  Group(const Group&) = delete;

  // Starts the batch after the work of its streams, on one thread at a time. `token`: pinned memory
  // that a barrier adds up.
  std::shared_ptr<Flight> start(const std::vector<gannet::sdk::Collective>& batch, void* token);
  // Why the group's collectives have failed, if they have.
  std::optional<Failure> failure() const {
    const auto communicator = this->communicator();
    return communicator ? communicator->failure() : std::nullopt;
  }
  void require_intact() const {
    if (const auto why = failure()) throw *why;
  }
  // A failure of the group, found by asking the library and by the age of its works.
  std::optional<Failure> look(std::chrono::milliseconds oldest);
  void abort(const Failure& why) noexcept;
  void abort();  // by this rank's host
  // Waits until what was started is over, and the communicator may be split.
  void drain(Communicator::Clock::time_point deadline) const;
  std::shared_ptr<Communicator> communicator() const {
    const std::lock_guard lock(mutex_);
    return communicator_;
  }
  void leave_pending() { left_pending_ = true; }

 private:
  std::string who() const;
  void copy_alone(const gannet::sdk::Collective& c);

  const Options options_;
  const std::function<std::shared_ptr<Communicator>()> make_;
  std::atomic<bool> left_pending_{false};  // whether a work timed out and may still be in flight
  mutable std::mutex mutex_;               // guards flights_ and communicator_, which the watcher looks at
  std::deque<std::weak_ptr<Flight>> flights_;
  std::shared_ptr<Communicator> communicator_;
  Queue queue_;  // destroyed first: waits for work that uses the communicator
};

}  // namespace gannet_nccl
