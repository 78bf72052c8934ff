// Passes tensors from a stage to a neighbouring one, in one direction. Messages arrive in the order
// in which they were sent. Each has a header in host memory, so that the number, shapes and dtypes
// of the tensors may change from one message to the next, and the tensors' bytes follow over the
// device's Comm.
//
//   Lane forward(ranks, "forward", /*both_ways=*/false);    // constructed on every stage
//   forward.expect({{stage - 1, 8}});                       // the messages until finish(), by stage
//   forward.send(stage + 1, number, activations);           // returns at once; holds the memory until it is sent
//   Wire wire = forward.receive(stage - 1, number, flags);  // both stages give the message the same number
//   forward.finish();
//
// There is a lane for activations and one for gradients, so that a blocked send cannot delay messages in
// the other one.
//
// On a host, the receive of the next message is posted before it is wanted, so that it arrives while this stage
// computes. (Besides, Gloo's event thread polls for as long as a message has no receive.) The layout
// is then not known yet: both sides expect that of the last two messages if these were equal. A
// message of any other layout follows a dummy of the expected layout, which is dropped.
//
// A device's Comm executes the operations of a group in order: a receive whose message is not on its way would
// hold up the sends behind it, and two stages that send to each other would wait for each other's receive. So on a
// device a receive is posted once its header has arrived, and a lane both to higher and to lower stages (chunks that
// wrap around, or a V) has a group for each direction: within a group, no stage waits for one that waits for it.
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
  ~Lane();  // after a step that failed partway, aborts the Comms: the expected messages never come
  Lane(const Lane&) = delete;

  /// How many messages each stage sends until finish(). All of them must be received.
  void expect(const std::map<uint32_t, int64_t>& messages_from);
  /// Undefined tensors arrive undefined. Throws Error(kUnsupported) for a sparse tensor.
  void send(uint32_t stage, int64_t number, const Wire& tensors);
  /// Waits for the next message from a stage, which must have this number. `requires_grad`
  /// gets a flag for each tensor: whether it required a gradient where it was sent.
  Wire receive(uint32_t stage, int64_t number, std::vector<bool>& requires_grad);
  /// Waits until all messages are sent.
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
  // The layouts of the last two messages between two stages, which both stages know.
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
  // The group for a message, the same on the sender and on the receiver.
  DeviceComm& way(uint32_t from, uint32_t to) { return ways_[from < to ? 0 : ways_.size() - 1]->device; }

  const RankContext& ranks_;
  HostGroup host_;
  std::vector<std::unique_ptr<Way>> ways_;  // one for all messages, or one to higher stages and one to lower ones
  std::deque<std::unique_ptr<Sent>> in_flight_;
  std::map<uint32_t, Past> past_sent_;     // by stage
  std::map<uint32_t, Incoming> incoming_;  // by stage
};

}  // namespace gannet::pipeline
