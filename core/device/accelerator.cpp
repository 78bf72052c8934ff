#include "device/accelerator.h"

#include <cstring>

#include "base/format.h"
#include "interfaces/call.h"

namespace gannet {

Accelerator::Accelerator(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host)
    : plugin_(plugin), params_(std::move(params)), api_(interfaces::api_of<gannet_accelerator_api>(plugin)) {
  interfaces::call(plugin_, {"create"}, api_->create, host.table(), &params_.view(), &self_);
  if (has(GANNET_ACCELERATOR_QUEUES) == (api_->queue_create != nullptr)) return;
  interfaces::marked(plugin_, {"destroy"}, api_->destroy, self_);
  throw plugin::fault(
      plugin_, formatted("{} says that it has queues and has no functions for them, or the other way round: "
                         "GANNET_ACCELERATOR_QUEUES belongs into its capabilities exactly where its queue functions are not null",
                         interfaces::who(plugin_)));
}

Accelerator::~Accelerator() { interfaces::marked(plugin_, {"destroy"}, api_->destroy, self_); }

bool Accelerator::has(gannet_accelerator_capability capability) const {
  return (interfaces::marked(plugin_, {"capabilities"}, api_->capabilities, self_) & capability) != 0;
}

uint32_t Accelerator::device_count() const { return interfaces::marked(plugin_, {"device_count"}, api_->device_count, self_); }

uint32_t Accelerator::device_of(uint32_t local_rank) const {
  const uint32_t count = device_count();
  if (count == 1) return 0;
  if (local_rank < count) return local_rank;
  throw Error(ErrorCode::kUnavailable,
              formatted("local rank {} has no device of its own: accelerator '{}' has {}", local_rank, name(), count),
              formatted("start at most {} processes on this machine, or let each see one device alone", count));
}

Accelerator::Device Accelerator::device(uint32_t index) const {
  gannet_device_info info{};
  info.struct_size = sizeof(info);
  interfaces::call(plugin_, {"device_info"}, api_->device_info, self_, index, &info);
  Device device;
  device.name = printable(std::string_view(info.name, strnlen(info.name, sizeof(info.name))));
  device.torch_device_type = info.torch_device_type;
  device.memory_bytes = info.memory_bytes;
  device.free_bytes = info.free_bytes;
  device.compute_major = info.compute_major;
  device.compute_minor = info.compute_minor;
  return device;
}

void Accelerator::set_device(uint32_t index) { interfaces::call(plugin_, {"set_device"}, api_->set_device, self_, index); }

void Accelerator::synchronize(uint32_t index) { interfaces::call(plugin_, {"synchronize"}, api_->synchronize, self_, index); }

void* Accelerator::native_stream(uint32_t index, int64_t stream_id) const {
  void* const handle = interfaces::marked(plugin_, {"native_stream"}, api_->native_stream, self_, index, stream_id);
  if (handle || !has(GANNET_ACCELERATOR_STREAMS)) return handle;
  throw plugin::fault(
      plugin_, formatted("{} has streams, and no handle for stream {} of device {}", interfaces::who(plugin_), stream_id, index));
}

std::string Accelerator::default_comm() const {
  const char* name = interfaces::marked(plugin_, {"default_comm"}, api_->default_comm, self_);
  return name ? printable(name) : "";
}

std::string Accelerator::plugin_device() const {
  const char* device = interfaces::marked(plugin_, {"plugin_device"}, api_->plugin_device, self_);
  return device ? printable(device) : name();
}

}  // namespace gannet
