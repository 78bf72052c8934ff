// The collectives that a plugin may ask its host for, over the ranks of the data axis: on the engine's own Comm.
#pragma once

#include <exception>

#include "interfaces/host.h"
#include "params/rank_context.h"

namespace gannet {

class GroupCollectives : public HostCollectives {
 public:
  explicit GroupCollectives(RankContext& context) : context_(context) {}
  void run(const gannet_host_collective& args) override;
  // After a call of the plugin that failed: where it failed because a collective did, that one's error, which is not the
  // plugin's.
  void rethrow() const {
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  void move(const gannet_host_collective& args);
  std::exception_ptr failed_;
  RankContext& context_;
};

}  // namespace gannet
