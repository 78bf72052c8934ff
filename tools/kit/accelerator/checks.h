// The checks of an accelerator, by subject; their table is in checks.cpp.
#pragma once

#include <memory>

#include "interfaces/host.h"
#include "kit/check.h"
#include "kit/object.h"

namespace gannet::kit {

// An accelerator's object; throws SkippedCheck with the reason if this machine has no such device.
class Device {
 public:
  explicit Device(const Subject& subject);
  Device(const Device&) = delete;
  const gannet_accelerator_api& api() const { return api_; }
  void* self() const { return object_->self(); }
  const plugin::Plugin& plugin() const { return plugin_; }
  uint32_t count() const;
  bool has_queues() const;

 private:
  const plugin::Plugin& plugin_;
  const gannet_accelerator_api& api_;
  const gannet::Host host_;
  plugin::ParamSet params_;
  std::unique_ptr<PluginObject> object_;
};

// queue_checks.cpp
void copy_in_order(Subject& subject);
void order_by_events(Subject& subject);
void synchronize_all(Subject& subject);
void outlive_queues(Subject& subject);
void use_queues_in_threads(Subject& subject);
void pin_memory(Subject& subject);
void leave_nothing_of_queues(Subject& subject);

}  // namespace gannet::kit
