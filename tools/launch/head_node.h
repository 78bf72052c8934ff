// A host of a run, as its head sees it (launch/head.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "launch/attempt.h"
#include "launch/connection.h"
#include "launch/hostfile.h"
#include "launch/node_plan.h"

namespace gannet::launch {

struct HeadNode {
  Host host;
  bool is_here = false;
  std::unique_ptr<Connection> connection;  // null: not connected
  uint32_t first_rank = 0;
  std::string refusal;  // why it cannot take part; "": no reason so far
  int refusal_code = 3;
  std::optional<Readiness> readiness;
  std::optional<AttemptOutcome> outcome;  // for this attempt
  bool is_silent = false;
  std::chrono::steady_clock::time_point started, heard;
  int tries = 0;                                                       // in this start
  std::optional<std::chrono::steady_clock::time_point> next_try = {};  // sshd had too many connections
};

}  // namespace gannet::launch
