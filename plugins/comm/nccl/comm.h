// The Comm over NCCL, for any device whose library has its functions.
//
// Each group has a communicator and a queue of its own. A collective waits for its stream on the
// device, runs in the group's queue, and is over when the event after it is. No call of the library
// blocks (Communicator), so every wait has a deadline; a watcher thread asks for errors of what is in
// flight, and aborts all groups at the first.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <gannet/sdk_comm.hpp>
#include <gannet/sdk_store.hpp>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "communicator.h"
#include "device.h"
#include "group.h"
#include "library.h"

namespace gannet_nccl {

// The groups that are open. Any thread may abort them.
class OpenGroups {
 public:
  void add(Group* group);
  void remove(Group* group);
  void abort();
  // Aborts all groups if one has failed, or has a work older than `oldest`.
  void look(std::chrono::milliseconds oldest);

 private:
  std::mutex mutex_;
  std::set<Group*> all_;
};

// A thread that looks at the groups from time to time.
class Watcher {
 public:
  Watcher(OpenGroups& groups, std::chrono::milliseconds oldest);
  ~Watcher();

 private:
  std::mutex mutex_;
  std::condition_variable ending_;
  bool is_ending_ = false;
  std::thread thread_;
};

class NcclComm : public gannet::sdk::CommBase {
 public:
  using Collective = gannet::sdk::Collective;
  struct Group : gannet_nccl::Group {
    Group(NcclComm& comm, const Options& options, const std::vector<uint32_t>& ranks);
    ~Group();
    NcclComm& comm_;
    const std::vector<uint32_t> ranks_;
  };
  struct Work {
    bool wait(uint64_t timeout_ms);
    bool is_over() { return group.failure() || flight->event.is_over(); }
    Group& group;
    std::shared_ptr<Flight> flight;
  };

  NcclComm(const gannet_host& host, const gannet::sdk::Params& params, const gannet_rendezvous& rendezvous, const char* soname);
  std::unique_ptr<Group> make_group(const std::vector<uint32_t>& ranks, uint32_t rank, const std::string& name);
  std::unique_ptr<Work> start(Group& group, const Collective& collective) {
    return std::move(start_many(group, {collective}).front());
  }
  std::vector<std::unique_ptr<Work>> start_many(Group& group, const std::vector<Collective>& batch);  // one work for all
  void block(Work& work, void* stream);
  void abort();

 private:
  const Library& library() const { return Library::open(library_name_, soname_); }
  std::shared_ptr<Communicator> make_communicator(const std::vector<uint32_t>& ranks, const gannet_nccl::Group::Options& group);
  UniqueId agreed_id(const std::vector<uint32_t>& ranks, uint32_t rank, const std::string& who, const std::string& key) const;

  const Device device_;
  const std::string library_name_, soname_;
  const std::chrono::milliseconds timeout_;
  const gannet::sdk::Store store_;
  std::atomic<bool> is_aborted_{false};   // outlives the communicators, which look at it
  std::map<std::string, uint64_t> made_;  // communicators so far, by the group's name and ranks
  // The first communicator of each set of ranks, from which later ones are split. It is kept, because
  // ranks may destroy groups at different times, and must all split it, or none may.
  struct FirstOfRanks {
    std::shared_ptr<Communicator> communicator;
    Group* group;  // null once it is destroyed
  };
  std::map<std::vector<uint32_t>, FirstOfRanks> by_ranks_;
  std::mutex launching_;
  std::unique_ptr<PinnedPage> token_;  // null in a world of one
  OpenGroups groups_;
  std::unique_ptr<Watcher> watcher_;  // null in a world of one
};

// NcclComm with the library of a vendor: `Vendor::kSoname`, and its name in `Vendor::kParams`.
template <class Vendor>
struct NcclOf : NcclComm {
  static constexpr std::array kParams = Vendor::kParams;
  NcclOf(const gannet_host& host, const gannet::sdk::Params& params, const gannet_rendezvous& rendezvous)
      : NcclComm(host, params, rendezvous, Vendor::kSoname) {}
};

}  // namespace gannet_nccl
