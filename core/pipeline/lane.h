// Passes tensors from a stage to a neighbouring one, in one direction. Messages arrive in the order
// in which they were sent. Each has a header in host memory, so that the number, shapes and dtypes
// of the tensors may change from one message to the next, and the tensors' bytes follow over the
// device's Comm.
//
//   Lane forward(ranks, "forward");                    // every stage makes it
//   forward.expect({{stage - 1, 8}});                  // the messages until finish(), by stage
//   forward.send(stage + 1, number, activations);      // returns at once; holds the memory until it was sent
//   Wire wire = forward.receive(stage - 1, number);    // a number that both stages give the message
//   forward.finish();
//
// There is a lane for activations and one for gradients, so that a blocked send cannot delay messages in
// the other one.
//
// On a host, the receive of the next message is posted before it is wanted, so that it arrives while this stage
// computes. (Besides, Gloo's event thread polls for as long as a message has no receive.) The sizes
// are then not known yet: both sides expect those of the last two messages if these were
// equal. A message that turns out to be another one follows one of the expected size, which is dropped.
//
// A device's Comm executes what a group is given in turn: a receive whose message is not on its way would
// hold up the sends behind it, and two stages that send to each other would wait for each other's receive. So there
// a receive is posted once its header has come, and where a lane leads both to higher and to lower stages (chunks that
// wrap around, or a V) it has a group for each: within a group, no stage waits for one that waits for it.
#pragma once

#include <gannet/wire.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device_comm.h"
#include "interfaces/host_group.h"
#include "params/rank_context.h"

namespace gannet::pipeline {

class Lane {
 public:
  /// `both_ways`: to higher and to lower stages.
  Lane(const RankContext& ranks, const std::string& name, bool both_ways);
  ~Lane();  // after a step that failed in the middle, aborts the Comms: what was expected never comes
  Lane(const Lane&) = delete;

  /// How many messages each stage sends until finish(). receive() takes them all.
  void expect(const std::map<uint32_t, int64_t>& messages_from);
  /// Undefined tensors pass as such.
  void send(uint32_t stage, int64_t number, const Wire& tensors);
  /// Waits for the next message from a stage, which must have this number. `requires_grad`
  /// gets a flag for each tensor: whether it required a gradient where it was sent.
  Wire receive(uint32_t stage, int64_t number, std::vector<bool>& requires_grad);
  /// Waits until everything was sent.
  void finish();

 private:
  struct Sent {
    std::vector<int64_t> header;
    Work header_work;
    DeviceWork dropped_work, tensors_work;
    bool is_over() const { return header_work.is_over() && dropped_work.is_over() && tensors_work.is_over(); }
    void wait() {
      header_work.wait();
      dropped_work.wait();
      tensors_work.wait();
    }
  };
  using Layout = std::vector<int64_t>;  // flags, dtype and sizes of a message's tensors, as in its header
  // The layouts of the messages between two stages, as both of them know them.
  struct Past {
    Layout last, before;
    bool predicts() const { return !last.empty() && last == before; }
    void add(Layout layout) {
      before = std::move(last);
      last = std::move(layout);
    }
  };
  struct Incoming {
    int64_t left = 0;  // messages until finish()
    Past past;
    std::vector<int64_t> header;  // of the next message
    Wire predicted;
    Work header_work;  // null: none is left
    DeviceWork predicted_work;
  };
  void post_next(uint32_t stage, Incoming& from);
  bool predicts(const Past& past) const { return !keeps_order() && past.predicts(); }
  bool keeps_order() const { return ranks_.memory_is_apart || !ranks_.device.is_cpu(); }
  std::vector<DeviceComm::SentTensor> to_send(uint32_t stage, const Wire& tensors) const;
  DeviceWork start_receive(uint32_t stage, const Wire& tensors);

  struct Way {
    Way(const RankContext& ranks, const HostGroup& host, const char* name);
    CommGroup group;
    DeviceComm device;
  };
  // By the stages between which a message goes, on both of them.
  DeviceComm& way(uint32_t from, uint32_t to) { return ways_[from < to ? 0 : ways_.size() - 1]->device; }

  const RankContext& ranks_;
  HostGroup host_;
  std::vector<std::unique_ptr<Way>> ways_;  // one for all messages, or those to higher stages and those to lower ones
  std::deque<std::unique_ptr<Sent>> in_flight_;
  std::map<uint32_t, Past> past_sent_;     // by stage
  std::map<uint32_t, Incoming> incoming_;  // by stage
};

}  // namespace gannet::pipeline
