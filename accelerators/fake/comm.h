// The fake device's Comm: collectives between processes on one host. Each group has its own queue,
// with delays like those of copies. Reading a result before the collective has completed, or
// changing a buffer while the collective runs, gives wrong results, as on a GPU.
#pragma once

#include <gannet/sdk_comm.hpp>
#include <map>
#include <mutex>
#include <set>

#include "mailboxes.h"
#include "queue.h"

namespace gannet::accelerators {

class FakeComm : public sdk::CommBase {
 public:
  static constexpr std::array kParams{
      sdk::at_least(sdk::integer("delay_us", "0", "each collective first sleeps a pseudo-random time up to this"), 0),
      sdk::at_least(sdk::integer("seed", "0", "of these times"), 0)};
  struct Group {
    Group(FakeComm& comm, const std::string& name, uint32_t rank, uint32_t size);
    ~Group();
    FakeComm& comm;
    const uint32_t rank;
    Mailboxes mailboxes;
    std::atomic<bool> left_pending{false};  // whether a Work timed out and may still be in flight
    FakeQueue queue;                        // destroyed first, because its work uses the mailboxes
  };
  struct Work {
    bool wait(uint64_t timeout_ms);
    bool is_over() { return event.moment()->is_reached(); }
    FakeEvent event;
    Group& group;
  };

  FakeComm(const gannet_host& host, const sdk::Params& params, const gannet_rendezvous& rendezvous);
  std::unique_ptr<Group> make_group(const std::vector<uint32_t>& ranks, uint32_t rank, const std::string& name);
  std::unique_ptr<Work> start(Group& group, const sdk::Collective& collective) {
    return std::move(start_many(group, {collective}).front());
  }
  std::vector<std::unique_ptr<Work>> start_many(Group& group, const std::vector<sdk::Collective>& batch);  // one Work for all
  void block(Work& work, void* stream) { work.event.block(stream); }
  void abort();

  // Returns ordinary host memory. Registration is a no-op apart from its error checks.
  void* allocate(Group& group, uint64_t bytes);
  void deallocate(Group& group, void* memory);
  void register_buffer(Group& group, void* buffer, uint64_t bytes);
  void unregister_buffer(Group& group, void* buffer);

 private:
  const sdk::Store store_;
  Bus bus_;
  std::atomic<uint64_t> groups_made_{0};
  std::mutex mutex_;  // guards the members below
  std::set<Group*> groups_;
  std::map<void*, uint64_t> registered_;
};

}  // namespace gannet::accelerators
