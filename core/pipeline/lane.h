// Passes tensors from a stage to a neighbouring one, in one direction. Messages arrive in the order
// in which they were sent. Each has a header in host memory, so that the number, shapes and dtypes
// of the tensors may change from one message to the next, and the tensors' bytes follow over the
// device's Comm.
//
//   Lane forward(ranks, "forward");                    // every stage makes it
//   forward.send(stage + 1, number, activations);      // returns at once; holds the memory until it was sent
//   Wire wire = forward.receive(stage - 1, number);    // a number that both stages give the message
//
// There is a lane for each direction, so that a blocked send cannot delay messages in the other one.
#pragma once

#include <gannet/wire.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "device/device_comm.h"
#include "interfaces/host_group.h"
#include "params/rank_context.h"

namespace gannet::pipeline {

class Lane {
 public:
  Lane(const RankContext& ranks, const std::string& name);

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
    DeviceWork tensors_work;
    bool is_over() const { return header_work.is_over() && tensors_work.is_over(); }
  };
  const RankContext& ranks_;
  HostGroup host_;
  CommGroup group_;
  DeviceComm device_;
  std::deque<std::unique_ptr<Sent>> in_flight_;
};

}  // namespace gannet::pipeline
