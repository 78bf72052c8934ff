// Passes tensors from a stage to a neighbouring one, in one direction. Messages arrive in the order
// in which they were sent. Each has a header in host memory, so that the number, shapes and dtypes
// of the tensors may change from one message to the next, and the tensors' bytes follow over the
// device's Comm.
//
//   Lane forward(ranks, "forward", /*both_ways=*/false);    // constructed on every stage
//   forward.expect({{stage - 1, 8}});                       // the messages until finish(), by stage
//   forward.send(stage + 1, number, activations);           // returns at once; holds the memory until it is sent
//   Wire wire = forward.receive(stage - 1, number, flags);  // same number on both sides
//   forward.finish();
//
// There is one lane for activations and one for gradients, so that a blocked send cannot delay the
// other kind of message.
//
// On a host, the receive for the next message is posted early, so that it arrives while this stage
// computes. (Also, Gloo's event thread polls while a message has no matching receive.) If the last
// two messages had the same layout, both sides predict it for the next one. A message with a
// different layout is preceded by a dummy of the predicted layout, which is dropped.
//
// A device's Comm executes a group's operations in order: a receive for an unsent message would
// block the sends behind it, and two stages that send to each other would deadlock. So a device's
// receives are posted once their header has arrived, and a lane to higher and lower stages (chunks
// that wrap around, or a V) has one group per direction, in which no stages wait for each other.
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
  /// `both_ways`: messages go to higher and to lower stages.
  Lane(const RankContext& ranks, const std::string& name, bool both_ways);
  ~Lane();  // after a step that failed partway, aborts the Comms: no further messages will arrive
  Lane(const Lane&) = delete;

  /// Sets how many messages each stage will send until finish(). All of them must be received.
  void expect(const std::map<uint32_t, int64_t>& messages_from);
  /// Undefined tensors arrive undefined. Throws Error(kUnsupported) for a sparse tensor.
  void send(uint32_t stage, int64_t number, const Wire& tensors);
  /// Waits for the next message from a stage, which must have this number. `requires_grad`
  /// gets a flag for each tensor: whether it required a gradient on the sender.
  Wire receive(uint32_t stage, int64_t number, std::vector<bool>& requires_grad);
  /// Waits until all messages are sent.
  void finish();

 private:
  struct SentMessage {
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
    int64_t left = 0;  // remaining messages until finish()
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
  // The communicator for a message; sender and receiver use the same one.
  DeviceComm& way(uint32_t from, uint32_t to) { return ways_[from < to ? 0 : ways_.size() - 1]->device; }

  const RankContext& ranks_;
  HostGroup host_;
  std::vector<std::unique_ptr<Way>> ways_;  // one for all messages, or one to higher stages and one to lower ones
  std::deque<std::unique_ptr<SentMessage>> in_flight_;
  std::map<uint32_t, Past> past_sent_;     // by stage
  std::map<uint32_t, Incoming> incoming_;  // by stage
};

}  // namespace gannet::pipeline
