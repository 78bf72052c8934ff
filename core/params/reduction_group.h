// The ranks that hold the same parameters: gradients are averaged over them, and states are sharded
// among them. They are the ranks along the data axis, or along expert_data for experts.
#pragma once

namespace gannet {

class DeviceComm;
class HostGroup;

struct ReductionGroup {
  DeviceComm* comm = nullptr;  // tensors
  HostGroup* host = nullptr;   // numbers and strings
};

}  // namespace gannet
