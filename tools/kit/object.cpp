#include "kit/object.h"

#include "kit/comm/device.h"

namespace gannet::kit {
namespace {

gannet_rendezvous alone() {
  gannet_rendezvous rendezvous{};
  rendezvous.struct_size = sizeof(rendezvous);
  rendezvous.world_size = 1;
  rendezvous.timeout_ms = 10000;
  return rendezvous;
}

template <class Api>
const Api& api_of(const plugin::Plugin& plugin) {
  return *interfaces::api_of<Api>(plugin);
}

}  // namespace

void require_explained(const char* name, const CallOutcome& outcome) {
  if (outcome.ok()) return;
  if (outcome.status < GANNET_OK || outcome.status > GANNET_INTERNAL)
    throw CheckFailure(formatted("{} returned {}, which is not a gannet_status", name, outcome.status), text_of(place()));
  if (outcome.message.empty())
    throw CheckFailure(formatted("{} returned status {} without a sentence", name, outcome.status), text_of(place()),
                       "a failure comes with a sentence in gannet_error",
                       "write what was found and what to do next into error->message");
}

void require_ok(const char* name, const CallOutcome& outcome) {
  if (!outcome.ok())
    throw CheckFailure(formatted("{} failed with status {}: {}", name, outcome.status,
                                 outcome.message.empty() ? "(no sentence)" : outcome.message),
                       text_of(place()));
}

PluginObject::PluginObject(const plugin::Plugin& plugin, const gannet_params& params, const gannet_host* host,
                           CallOutcome& outcome)
    : plugin_(plugin) {
  gannet_rendezvous rendezvous = alone();
  if (plugin.kind() == GANNET_KIND_COMM) add_device(rendezvous);
  switch (plugin.kind()) {
    case GANNET_KIND_OPTIMIZER:
      outcome = call("create", plugin, api_of<gannet_optimizer_api>(plugin).create, host, &params, &self_);
      break;
    case GANNET_KIND_SCHEDULER:
      outcome = call("create", plugin, api_of<gannet_scheduler_api>(plugin).create, host, &params, uint32_t{1}, &self_);
      break;
    case GANNET_KIND_ACCELERATOR:
      outcome = call("create", plugin, api_of<gannet_accelerator_api>(plugin).create, host, &params, &self_);
      break;
    case GANNET_KIND_OFFLOAD:
      outcome = call("create", plugin, api_of<gannet_offload_api>(plugin).create, host, &params, uint32_t{0}, &self_);
      break;
    case GANNET_KIND_COMM:
      outcome = call("create", plugin, api_of<gannet_comm_api>(plugin).create, host, &params, &rendezvous, &self_);
  }
  if (!outcome.ok()) self_ = nullptr;
}

PluginObject::~PluginObject() {
  if (!self_) return;
  const CallScope calling("destroy", place().step);
  switch (plugin_.kind()) {
    case GANNET_KIND_OPTIMIZER:
      api_of<gannet_optimizer_api>(plugin_).destroy(self_);
      return;
    case GANNET_KIND_SCHEDULER:
      api_of<gannet_scheduler_api>(plugin_).destroy(self_);
      return;
    case GANNET_KIND_ACCELERATOR:
      api_of<gannet_accelerator_api>(plugin_).destroy(self_);
      return;
    case GANNET_KIND_OFFLOAD:
      api_of<gannet_offload_api>(plugin_).destroy(self_);
      return;
    case GANNET_KIND_COMM:
      api_of<gannet_comm_api>(plugin_).destroy(self_);
      return;
  }
}

bool works_on_host(const plugin::Plugin& plugin) {
  const std::string device = plugin.device();
  return device.empty() || lower(device) == "cpu";
}

}  // namespace gannet::kit
