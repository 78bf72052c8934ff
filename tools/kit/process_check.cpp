#include "kit/process_check.h"

#include "interfaces/host.h"
#include "kit/object.h"
#include "kit/process_state.h"
#include "kit/relay.h"
#include "kit/relay_fault.h"

namespace gannet::kit {
namespace {

// Creates and destroys an object, which watches `create` and `destroy` of every kind. Returns false
// if the device or driver is missing.
bool make_one(Subject& subject) {
  const Host host;
  const auto params = subject.parsed();
  const ProcessScope scope = process_scope(subject.plugin->kind());
  const ProcessState before = ProcessState::now(scope);
  CallOutcome outcome;
  {
    const PluginObject object(*subject.plugin, params.view(), host.table(), outcome);
    if (const std::string change = ProcessState::now(scope).change_since(before); !change.empty())
      throw CheckFailure(change, "create");
  }
  require_explained("create", outcome);
  return outcome.status != GANNET_UNAVAILABLE;
}

}  // namespace

void leave_process_alone(Subject& subject) {
  if (!subject.opening.empty()) throw CheckFailure(subject.opening, "opening the file");
  // One thread: the host's own threads would be counted as the plugin's.
  const RelayScope scope({.watches_process = true, .threads = 1, .guards_allocations = true});
  if (!make_one(subject)) return;
  throw_kept_fault();
  switch (subject.plugin->kind()) {
    case GANNET_KIND_OPTIMIZER:
      use_optimizer(subject);
      break;
    case GANNET_KIND_SCHEDULER:
      use_scheduler(subject);
      break;
    case GANNET_KIND_COMM:
      use_comm(subject);
      break;
    case GANNET_KIND_OFFLOAD:
      use_offload(subject);
      break;
    case GANNET_KIND_ACCELERATOR:
      break;
  }
}

}  // namespace gannet::kit
