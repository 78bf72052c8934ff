#include "launch/agent.h"

#include <fcntl.h>
#include <gannet/error.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>

#include "base/format.h"
#include "control/address_exchange.h"
#include "control/network.h"
#include "launch/attempt.h"
#include "launch/cause.h"
#include "launch/devices.h"
#include "launch/guard.h"
#include "launch/marked.h"
#include "launch/node_plan.h"
#include "launch/supervise.h"

namespace gannet::launch {
namespace {

// The next frame of this kind; null at the end of the connection.
std::optional<Frame> wait_for(FrameKind kind, Session& session, HeadLink& head) {
  for (;;) {
    // Frames first: signals that arrive after `go` are for its ranks.
    while (auto frame = head.next_frame())
      if (frame->kind == kind) return frame;
    for (Signal signal; session.next(signal);) {  // no rank is running; the end of the connection is noticed below
    }
    if (head.is_lost()) return std::nullopt;
    session.wait({}, std::chrono::seconds(1));
    session.output.flush();
  }
}

// Checks what could keep the ranks from starting, before any host starts one.
void check(const NodePlan& plan) {
  if (const std::string own = build_id(); own != plan.build)
    throw Error(ErrorCode::kMismatch, formatted("its Gannet is another build ({}, not {})", own, plan.build),
                "install the same one on every host");
  if (chdir(plan.folder.c_str()) != 0)
    throw Error(ErrorCode::kNotFound, formatted("the folder '{}': {}", plan.folder, std::strerror(errno)),
                "start gannet run in a folder that every host has");
  find_program(plan.options.command.at(0), path_in(plan.options.environment));
  if (plan.options.bind_cores_to_rank) core_slice(available_cores(), plan.options.procs, 0);
  visible_devices(plan.options.slots, plan.options.environment);
}

Readiness readiness() { return {control::own_place(free_port()), control::machine_identity()}; }

AttemptOutcome attempt(NodePlan& plan, const Go& go, Session& session) {
  plan.options.node.master_addr = go.address.empty() ? control::address_in(go.place) : go.address;
  plan.options.node.master_port = go.port;
  AttemptOutcome failure{.code = 3, .failed = true};
  try {
    return Attempt(plan.options, std::chrono::milliseconds(plan.failure_grace_ms), session, go.restart).run();
  } catch (const StartError& error) {
    failure.code = error.shell_code();
    failure.report = error.what();
  } catch (const Error& error) {
    failure.code = error.exit_code();
    failure.report = error.what();
  }
  failure.why = "its ranks could not be started";
  failure.no_restart = reason_not_to_repeat(failure.code);
  return failure;
}

int serve(Session& session, HeadLink& head) {
  session.output.flush();
  const auto frame = wait_for(FrameKind::kPlan, session, head);
  if (!frame) return 0;
  NodePlan plan = node_plan_in(frame->body);
  try {
    std::vector<std::string> own = inherited_environment({});
    own.push_back(formatted("PWD={}", plan.folder));
    plan.options.environment = merged_environment(own, plan.options.environment);
    umask(plan.file_mask);
    check(plan);
  } catch (const Error& error) {
    const auto* const of_program = dynamic_cast<const StartError*>(&error);
    session.output.frame(FrameKind::kRefused, packed(Refusal{of_program ? of_program->shell_code() : 3, error.what()}));
    wait_for(FrameKind::kGo, session, head);
    return 1;
  }
  session.output.frame(FrameKind::kReady, packed(readiness()));
  while (const auto go = wait_for(FrameKind::kGo, session, head)) {
    const AttemptOutcome outcome = attempt(plan, go_in(go->body), session);
    report_dropped(session);
    session.output.frame(FrameKind::kOutcome, packed(outcome));
    session.output.frame(FrameKind::kReady, packed(readiness()));  // another port, for a restart
  }
  return 0;
}

}  // namespace

int run_agent() {
  keep_descriptors_apart();
  const std::string mark = new_mark();
  return run_guarded(
      mark,
      [&](int channel) {
        Session session(mark, channel, Output::Way::kFramed);
        HeadLink head;
        session.head = &head;
        return serve(session, head);
      },
      0);
}

}  // namespace gannet::launch
