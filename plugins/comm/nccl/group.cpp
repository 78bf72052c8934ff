#include "group.h"

#include <set>
#include <thread>

#include "calls.h"

namespace gannet_nccl {

using gannet::sdk::Collective;
using gannet::sdk::Failure;

namespace {

std::string text_of(const std::vector<Collective>& batch) {
  if (batch.empty()) return "an empty batch";
  std::string text = gannet::sdk::name_of_collective(batch.front().op);
  if (batch.front().op != GANNET_BARRIER) text += " of " + std::to_string(batch.front().bytes()) + " bytes";
  return batch.size() == 1 ? text : "a batch of " + std::to_string(batch.size()) + ", the first " + text;
}

}  // namespace

Group::Group(const Options& options, std::function<std::shared_ptr<Communicator>()> make)
    : options_(options), make_(std::move(make)), queue_(options.device, "nccl " + options.name) {
  if (options_.size > 1) communicator_ = make_();
}

// The queue's destructor waits for its work, so work that another rank may never join is ended first.
Group::~Group() {
  try {
    if (left_pending_ && !Event(options_.device, queue_.handle()).is_over()) abort();
  } catch (const Failure&) {  // the queue has failed, and skips its work
  }
}

std::string Group::who() const {
  return " in group '" + options_.name + "' (rank " + std::to_string(options_.rank) + " of " + std::to_string(options_.size) +
         ")";
}

void Group::copy_alone(const Collective& c) {
  const bool copies = c.op != GANNET_BARRIER && c.op != GANNET_BROADCAST && c.send != c.recv;
  if (const uint64_t bytes = c.send_count(0) * c.element_bytes(); copies && bytes > 0) queue_.copy(c.recv, c.send, bytes);
}

std::shared_ptr<Flight> Group::start(const std::vector<Collective>& batch, void* token) {
  std::set<void*> streams;
  bool needs_library = options_.size > 1;
  for (const Collective& c : batch) {
    if (c.stream) streams.insert(c.stream);
    needs_library |= c.first_factor() != 1.0;
  }
  std::shared_ptr<Communicator> communicator = this->communicator();
  if (needs_library && !communicator) {  // a factor in a group of one rank
    communicator = make_();
    const std::lock_guard lock(mutex_);
    communicator_ = communicator;
  }
  if (communicator) communicator->require_intact();
  if (needs_library)
    for (const Collective& c : batch) require_supported(c, communicator->library());
  for (void* stream : streams) queue_.wait_stream(stream);
  if (needs_library)
    communicator->launch(
        [&](const Communicator::Launch& launch) {
          for (const Collective& c : batch) issue(c, launch, queue_.stream(), token);
        },
        Communicator::Clock::now() + options_.timeout);
  else
    for (const Collective& c : batch) copy_alone(c);
  auto flight = std::make_shared<Flight>(options_.device, queue_.handle(), text_of(batch) + who());
  const std::lock_guard lock(mutex_);
  while (!flights_.empty() && flights_.front().expired()) flights_.pop_front();
  flights_.push_back(flight);
  return flight;
}

std::optional<Failure> Group::look(std::chrono::milliseconds oldest) {
  const std::shared_ptr<Communicator> communicator = this->communicator();
  if (!communicator || communicator->failure()) return std::nullopt;  // nothing to fail, or known
  if (auto failure = communicator->asynchronous_error()) return failure;
  std::shared_ptr<Flight> first;
  {
    const std::lock_guard lock(mutex_);
    while (!flights_.empty() && !(first = flights_.front().lock())) flights_.pop_front();
  }
  if (!first || Communicator::Clock::now() - first->started < oldest || first->event.is_over()) return std::nullopt;
  return Failure(GANNET_TIMEOUT, first->doing + " did not complete in " + std::to_string(oldest.count() / 1000) +
                                     " s: a rank is late, or the ranks call different collectives");
}

void Group::drain(Communicator::Clock::time_point deadline) const {
  const Event all(options_.device, queue_.handle());
  while (!all.is_over() && Communicator::Clock::now() < deadline) {
    require_intact();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void Group::abort(const Failure& why) noexcept {
  if (const auto communicator = this->communicator()) communicator->abort(why);
}

void Group::abort() {
  abort(Failure(GANNET_PEER_LOST, "comm plugin 'nccl': collectives" + who() + " were aborted by this rank"));
}

}  // namespace gannet_nccl
