// Collectives that a plugin may request from its host, over the ranks of the data axis. They run on
// the engine's Comm.
#pragma once

#include <exception>

#include "interfaces/host.h"
#include "params/rank_context.h"

namespace gannet {

class GroupCollectives : public HostCollectives {
 public:
  explicit GroupCollectives(RankContext& context) : context_(context) {}
  void run(const gannet_host_collective& args) override;
  // Call after a failed plugin call. If it failed because of a collective, throws that collective's
  // error instead of the plugin's.
  void rethrow() const {
    if (failed_) std::rethrow_exception(failed_);
  }

 private:
  void move(const gannet_host_collective& args);
  std::exception_ptr failed_;
  RankContext& context_;
};

}  // namespace gannet
