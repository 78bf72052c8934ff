// The ranks that hold the same parameters: their gradients are averaged and their states sharded among them. Those along the axis
// data, and of experts those along expert_data.
#pragma once

namespace gannet {

class DeviceComm;
class HostGroup;

struct ReductionGroup {
  DeviceComm* comm = nullptr;  // tensors
  HostGroup* host = nullptr;   // numbers and texts
};

}  // namespace gannet
