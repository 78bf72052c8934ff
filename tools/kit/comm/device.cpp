#include "kit/comm/device.h"

#include <unistd.h>

#include <memory>

#include "base/text.h"
#include "interfaces/host.h"
#include "kit/object.h"
#include "plugin/schema.h"

namespace gannet::kit {
namespace {

const plugin::Plugin* chosen = nullptr;

// The object of this process: a forked rank has one of its own. It lives as long as the process.
const PluginObject& opened() {
  static pid_t owner = 0;
  static const PluginObject* object = nullptr;
  if (owner == ::getpid()) return *object;
  static const gannet::Host& host = *new gannet::Host;
  const auto& params = *new plugin::ParamSet(plugin::parse_params(*chosen, {}, {}));
  CallOutcome outcome;
  object = new PluginObject(*chosen, params.view(), host.table(), outcome);
  require_ok("create of the accelerator", outcome);
  owner = ::getpid();
  return *object;
}

}  // namespace

void choose_device(const Subject& comm, const std::vector<const plugin::Plugin*>& others) {
  if (works_on_host(*comm.plugin)) return;
  for (const auto* plugins : {&comm.of_file, &others})
    for (const plugin::Plugin* one : *plugins)
      if (!chosen && one->kind() == GANNET_KIND_ACCELERATOR && lower(one->name()) == lower(comm.plugin->device())) chosen = one;
}

void add_device(gannet_rendezvous& rendezvous) {
  if (!chosen) return;
  rendezvous.accelerator = interfaces::api_of<gannet_accelerator_api>(*chosen);
  rendezvous.accelerator_self = opened().self();
  const auto& api = *rendezvous.accelerator;
  require_ok("set_device", call("set_device", *chosen, api.set_device, rendezvous.accelerator_self, rendezvous.device));
}

bool has_device_of_host_memory() {
  if (!chosen) return false;
  gannet_device_info info{};
  info.struct_size = sizeof(info);
  const auto& api = *interfaces::api_of<gannet_accelerator_api>(*chosen);
  return call("device_info", *chosen, api.device_info, opened().self(), uint32_t{0}, &info).ok() && info.torch_device_type == 0;
}

}  // namespace gannet::kit
