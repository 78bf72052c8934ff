// The collectives that a plugin may ask its host for, over the ranks of the data axis: on the engine's own Comm.
#pragma once

#include "interfaces/host.h"
#include "params/rank_context.h"

namespace gannet {

class GroupCollectives : public HostCollectives {
 public:
  explicit GroupCollectives(RankContext& context) : context_(context) {}
  void run(const gannet_host_collective& args) override;

 private:
  RankContext& context_;
};

}  // namespace gannet
