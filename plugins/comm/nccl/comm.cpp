#include "comm.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <gannet/sdk_threads.hpp>

namespace gannet_nccl {

using gannet::sdk::Collective;
using gannet::sdk::Failure;
using std::chrono::milliseconds;
using namespace std::chrono_literals;

namespace {

constexpr auto kLook = 100ms;           // between two looks of the watcher
constexpr milliseconds kPatience = 3s;  // beyond the time-out, which the host's own waits notice first

}  // namespace

// ---- OpenGroups, Watcher ------------------------------------------------------------------------------------------------

void OpenGroups::add(Group* group) {
  const std::lock_guard lock(mutex_);
  all_.insert(group);
}

void OpenGroups::remove(Group* group) {
  const std::lock_guard lock(mutex_);
  all_.erase(group);
}

void OpenGroups::abort() {
  const std::lock_guard lock(mutex_);
  for (Group* group : all_) group->abort();
}

void OpenGroups::look(milliseconds oldest) {
  const std::lock_guard lock(mutex_);
  for (Group* group : all_) {
    const auto failure = group->look(oldest);
    if (!failure) continue;
    for (Group* other : all_) other->abort(*failure);
    return;
  }
}

Watcher::Watcher(OpenGroups& groups, milliseconds oldest) {
  const gannet::sdk::BlockSignals blocked;
  thread_ = std::thread([this, &groups, oldest] {
    pthread_setname_np(pthread_self(), "gannet-nccl");
    for (std::unique_lock lock(mutex_); !is_ending_; ending_.wait_for(lock, kLook)) {
      try {
        groups.look(oldest);
      } catch (const std::exception&) {  // the device's error, which its next caller gets
      }
    }
  });
}

Watcher::~Watcher() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ending_.notify_one();
  thread_.join();
}

// ---- NcclComm -----------------------------------------------------------------------------------------------------------

NcclComm::NcclComm(const gannet_host& host, const gannet::sdk::Params& params, const gannet_rendezvous& rendezvous,
                   const char* soname)
    : CommBase(host, params, rendezvous),
      device_(rendezvous),
      library_name_(params.text("library")),
      soname_(soname),
      timeout_(rendezvous.timeout_ms),
      store_(rendezvous.store) {
  if (!device_.has_streams())
    throw Failure(GANNET_UNSUPPORTED,
                  "comm plugin 'nccl' works on a device's memory, and was opened without an accelerator whose queues have "
                  "streams: set \"accelerator\" in the config, or name the Comm 'gloo'");
  if (world_size() == 1) return;
  if (!store_) throw Failure(GANNET_INVALID_ARGUMENT, "comm plugin 'nccl' needs a store to connect its ranks");
  library();  // what is missing is said before ranks wait for each other
  token_ = std::make_unique<PinnedPage>(device_);
  watcher_ = std::make_unique<Watcher>(groups_, timeout_ + kPatience);
}

NcclComm::Group::Group(NcclComm& comm, const Options& options, const std::vector<uint32_t>& ranks)
    : gannet_nccl::Group(options, [&comm, options, ranks] { return comm.make_communicator(ranks, options); }),
      comm_(comm),
      ranks_(ranks) {
  comm_.groups_.add(this);
  if (ranks.size() > 1) comm_.by_ranks_.emplace(ranks, FirstOfRanks{communicator(), this});
}

NcclComm::Group::~Group() {
  comm_.groups_.remove(this);
  if (const auto first = comm_.by_ranks_.find(ranks_); first != comm_.by_ranks_.end() && first->second.group == this)
    first->second.group = nullptr;
}

std::unique_ptr<NcclComm::Group> NcclComm::make_group(const std::vector<uint32_t>& ranks, uint32_t rank,
                                                      const std::string& name) {
  return std::make_unique<Group>(
      *this,
      Group::Options{
          .device = device_, .name = name, .rank = rank, .size = static_cast<uint32_t>(ranks.size()), .timeout = timeout_},
      ranks);
}

std::vector<std::unique_ptr<NcclComm::Work>> NcclComm::start_many(Group& group, const std::vector<Collective>& batch) {
  // One thread launches at a time, so that the launches of all groups have one order on this rank.
  const std::lock_guard lock(launching_);
  std::vector<std::unique_ptr<Work>> works;
  works.push_back(std::make_unique<Work>(Work{group, group.start(batch, token_ ? token_->data() : nullptr)}));
  for (const Collective& c : batch) count_least_traffic(c);
  return works;
}

void NcclComm::block(Work& work, void* stream) {
  work.group.require_intact();
  work.flight->event.block(stream);
}

void NcclComm::abort() {
  is_aborted_ = true;
  groups_.abort();
}

bool NcclComm::Work::wait(uint64_t timeout_ms) {
  const auto deadline = Communicator::Clock::now() + milliseconds(timeout_ms);
  for (auto nap = 5us;; nap = std::min<std::chrono::microseconds>(2 * nap, 500us)) {
    group.require_intact();
    if (flight->event.is_over()) {
      group.require_intact();  // an abort also ends the device's work
      flight->event.wait();
      return true;
    }
    if (Communicator::Clock::now() >= deadline) {
      group.leave_pending();
      return false;
    }
    std::this_thread::sleep_for(nap);
  }
}

// The first rank of the group makes the id; the others read it. Each rank says that it has come, so
// that a time-out can name the others.
UniqueId NcclComm::agreed_id(const std::vector<uint32_t>& ranks, uint32_t rank, const std::string& who,
                             const std::string& key) const {
  UniqueId id{};
  const gannet::sdk::BlockSignals blocked;  // the library starts threads
  if (ranks.size() == 1 || rank == 0) {
    if (const Result result = library().get_unique_id(&id); result != kSuccess)
      throw Failure(GANNET_IO_ERROR, "comm plugin 'nccl', " + who + ": ncclGetUniqueId: " + library().get_error_string(result) +
                                         ": the library finds no network interface that serves, of those that "
                                         "NCCL_SOCKET_IFNAME allows (NCCL_DEBUG=INFO lists them)");
    if (ranks.size() > 1) store_.set(key + "/id", std::string(id.bytes, sizeof(id.bytes)));
    return id;
  }
  try {
    store_.wait(key + "/id", static_cast<uint64_t>(timeout_.count()));
  } catch (const Failure& failure) {
    if (failure.status() != GANNET_TIMEOUT) throw;
    throw Failure(GANNET_TIMEOUT, "comm plugin 'nccl', " + who + ": rank " + std::to_string(ranks[0]) +
                                      ", the group's first, has not made its id in " + std::to_string(timeout_.count() / 1000) +
                                      " s");
  }
  const std::string bytes = store_.get(key + "/id");
  if (bytes.size() != sizeof(id.bytes))
    throw Failure(GANNET_INVALID_ARGUMENT, "comm plugin 'nccl', " + who + ": the group's id has " + std::to_string(bytes.size()) +
                                               " bytes, not 128: the ranks run different programs");
  std::memcpy(id.bytes, bytes.data(), sizeof(id.bytes));
  return id;
}

std::shared_ptr<Communicator> NcclComm::make_communicator(const std::vector<uint32_t>& ranks,
                                                          const gannet_nccl::Group::Options& group) {
  const auto rank = static_cast<int>(group.rank), size = static_cast<int>(group.size);
  const std::string who = "group '" + group.name + "' (rank " + std::to_string(rank) + " of " + std::to_string(size) + ")";
  const auto deadline = Communicator::Clock::now() + timeout_;
  device_.make_current();
  // An existing communicator of the same ranks lends its connections (ncclCommSplit) and must be
  // idle for that. A communicator of fewer ranks is created by its members only, which a split does
  // not allow.
  if (const auto first = by_ranks_.find(ranks); library().split && first != by_ranks_.end()) {
    if (first->second.group) first->second.group->drain(deadline);
    return std::make_shared<Communicator>(*first->second.communicator, rank, who, deadline);
  }
  std::string key = "nccl/" + group.name;
  for (const uint32_t member : ranks) key += "," + std::to_string(member);
  key += "/" + std::to_string(made_[key]++);
  if (size > 1) store_.set(key + "/here/" + std::to_string(rank), "");
  const UniqueId id = agreed_id(ranks, group.rank, who, key);
  try {
    return std::make_shared<Communicator>(library(), id, rank, size, who, deadline, is_aborted_);
  } catch (const Failure& failure) {
    if (failure.status() != GANNET_TIMEOUT) throw;
    std::string absent;
    for (int other = 0; other < size; ++other)
      if (!store_.has(key + "/here/" + std::to_string(other)))
        absent += (absent.empty() ? "" : ", ") + std::to_string(ranks[static_cast<size_t>(other)]);
    throw Failure(GANNET_TIMEOUT,
                  std::string(failure.what()) + " (" + std::to_string(timeout_.count() / 1000) + " s): " +
                      (absent.empty() ? "all ranks have come, so a connection between them fails: NCCL_DEBUG=INFO shows which; " +
                                            how_the_interface_is_chosen()
                                      : "rank " + absent + " has not come"));
  }
}

}  // namespace gannet_nccl
