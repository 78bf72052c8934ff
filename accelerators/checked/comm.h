// The Comm of the checked device: runs the fake device's collectives on the memory behind the
// device addresses. Each group has its own clock. A collective joins its stream's clock into it;
// waiting for the work joins the group's clock into the waiter's clock.
#pragma once

#include "accelerators/fake/comm.h"
#include "checker.h"

namespace gannet::accelerators::checked {

class CheckedComm : public sdk::CommBase {
 public:
  static constexpr auto kParams = FakeComm::kParams;
  struct Group {
    Group(std::unique_ptr<FakeComm::Group> made, const std::string& name)
        : fake(std::move(made)), actor(Checker::get().make_actor("the Comm's group '" + name + "'")) {}
    ~Group() {
      fake.reset();  // waits for the group's work
      Checker::get().end(actor);
    }
    Group(const Group&) = delete;
    std::unique_ptr<FakeComm::Group> fake;
    Actor& actor;
  };
  struct Work {
    bool wait(uint64_t timeout_ms);
    bool is_over();
    std::unique_ptr<FakeComm::Work> fake;
    Clock clock;
    bool is_known_over = false;  // a query has said so, and wait() returns at once
  };

  CheckedComm(const gannet_host& host, const sdk::Params& params, const gannet_rendezvous& rendezvous)
      : CommBase(host, params, rendezvous), fake_(host, params, rendezvous) {}
  std::unique_ptr<Group> make_group(const std::vector<uint32_t>& ranks, uint32_t rank, const std::string& name);
  std::unique_ptr<Work> start(Group& group, const sdk::Collective& collective) {
    return std::move(start_many(group, {collective}).front());
  }
  std::vector<std::unique_ptr<Work>> start_many(Group& group, const std::vector<sdk::Collective>& batch);  // one work for all
  void block(Work& work, void* stream);
  void abort() { fake_.abort(); }
  uint32_t sum_dtype(uint32_t dtype) const { return fake_.sum_dtype(dtype); }
  void counters(gannet_comm_counters& out) const;

 private:
  FakeComm fake_;
};

}  // namespace gannet::accelerators::checked
