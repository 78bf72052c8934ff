// A family of devices, as the engine sees it: its capabilities and its devices. Memory and compute
// streams come from LibTorch's dispatch on torch_device_type; copies that overlap compute run on
// queues (device/queue.h).
#pragma once

#include <cstdint>
#include <string>

#include "interfaces/host.h"
#include "plugin/plugin.h"

namespace gannet {

class Pin;
class Queue;

class Accelerator {
 public:
  struct Device {
    std::string name;
    int torch_device_type = 0;  // c10::DeviceType
    uint64_t memory_bytes = 0, free_bytes = 0;
    uint32_t compute_major = 0, compute_minor = 0;
  };

  // Loads the vendor part of LibTorch. Throws Error(kUnavailable) with the reason if there is no driver,
  // Error(kPluginFault) if the capability for queues and the queue functions contradict each other.
  Accelerator(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host);
  ~Accelerator();
  Accelerator(const Accelerator&) = delete;

  const plugin::Plugin& plugin() const { return plugin_; }
  std::string name() const { return plugin_.name(); }  // "cpu", "cuda": the registry's device
  bool has(gannet_accelerator_capability capability) const;
  uint32_t device_count() const;
  // The device of a process, by its local rank. If only one device is visible, every rank uses it:
  // a scheduler that gives each task its own device hides the others (CUDA_VISIBLE_DEVICES). Throws
  // Error(kUnavailable) if several devices are visible, but too few for this local rank to have one
  // of its own.
  uint32_t device_of(uint32_t local_rank) const;
  Device device(uint32_t index) const;
  void set_device(uint32_t index);
  void synchronize(uint32_t index);
  // The native handle of the c10::Stream with this id. Null only on a device without streams.
  void* native_stream(uint32_t index, int64_t stream_id) const;
  std::string default_comm() const;
  // The device name of the optimizer and comm plugins that work on this device's memory. It is
  // name(), except for a device backed by another device's memory.
  std::string plugin_device() const;

  // `name` is for messages. Throws Error(kUnsupported) if device memory is separate and there are no queues.
  Queue make_queue(const std::string& name, uint32_t index = 0);
  // Page-locks host memory for asynchronous copies; does nothing on a device without queues. If the
  // machine refuses, warns once and leaves the memory unpinned; copies then block the host.
  Pin pin(void* address, uint64_t bytes);

  const gannet_accelerator_api* api() const { return api_; }
  void* self() const { return self_; }

 private:
  const plugin::Plugin& plugin_;
  plugin::ParamSet params_;
  const gannet_accelerator_api* api_;
  void* self_ = nullptr;
  bool pin_failure_is_said_ = false;
};

}  // namespace gannet
