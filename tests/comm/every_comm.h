// Tests that run on every Comm plugin that connects several ranks.
//
//   INSTANTIATE_TEST_SUITE_P(Messages, EveryComm, kPlugins, plugin_name);
//   TEST_P(EveryComm, ...) { run("the rank body's name", 2); }
#pragma once

#include <gannet/distributed.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "comm/ranks.h"
#include "control/world.h"

namespace gannet::test {

// The accelerator whose memory a Comm moves; "" for host memory.
inline std::string accelerator_of(const std::string& comm) {
  if (comm == "fake" || comm == "checked") return comm;
  return comm == "nccl" ? "checked" : "";
}

// The world of the plugin under test; the fake device's comm is late.
inline std::shared_ptr<ProcessGroup> join() {
  const std::string name = std::getenv("COMM");
  DistributedOptions options;
  options.comm = name;
  if (name == "nccl") setenv("GANNET_PLUGIN_PATH", GANNET_BINARY_DIR "/tests/nccl_double", 1);  // over a double of its library
  if (name == "fake") options.comm_params = Dict{{"delay_us", 3000}, {"seed", 5}};
  auto group = init_distributed(options);
  if (const std::string accelerator = accelerator_of(name); !accelerator.empty())  // as an engine does
    group->world()->open_comm(name, options.comm_params, {.accelerator = accelerator});
  return group;
}

class EveryComm : public testing::TestWithParam<const char*> {
 protected:
  void run(const std::string& body, int count) {
    ranks::expect_all_succeed(ranks::run_ranks(body, count, {.environment = {{"COMM", GetParam()}}}));
  }
};

inline const auto kPlugins = testing::Values("gloo", "fake", "checked", "nccl");
inline std::string plugin_name(const testing::TestParamInfo<const char*>& info) { return info.param; }

}  // namespace gannet::test
