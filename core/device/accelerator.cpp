#include "device/accelerator.h"

#include <cstring>

#include "base/format.h"
#include "interfaces/call.h"

namespace gannet {

Accelerator::Accelerator(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host)
    : plugin_(plugin), params_(std::move(params)), api_(interfaces::api_of<gannet_accelerator_api>(plugin)) {
  interfaces::call(plugin_, api_->create, host.table(), &params_.view(), &self_);
  if (has(GANNET_ACCELERATOR_QUEUES) == (api_->queue_create != nullptr)) return;
  api_->destroy(self_);
  throw plugin::fault(
      plugin_, formatted("{} says that it has queues and has no functions for them, or the other way round: "
                         "GANNET_ACCELERATOR_QUEUES belongs into its capabilities exactly where its queue functions are not null",
                         interfaces::who(plugin_)));
}

Accelerator::~Accelerator() { api_->destroy(self_); }

bool Accelerator::has(gannet_accelerator_capability capability) const { return (api_->capabilities(self_) & capability) != 0; }

uint32_t Accelerator::device_count() const { return api_->device_count(self_); }

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
  interfaces::call(plugin_, api_->device_info, self_, index, &info);
  Device device;
  device.name = printable(std::string_view(info.name, strnlen(info.name, sizeof(info.name))));
  device.torch_device_type = info.torch_device_type;
  device.memory_bytes = info.memory_bytes;
  device.free_bytes = info.free_bytes;
  device.compute_major = info.compute_major;
  device.compute_minor = info.compute_minor;
  return device;
}

void Accelerator::set_device(uint32_t index) { interfaces::call(plugin_, api_->set_device, self_, index); }

void Accelerator::synchronize(uint32_t index) { interfaces::call(plugin_, api_->synchronize, self_, index); }

void* Accelerator::native_stream(uint32_t index, int64_t stream_id) const { return api_->native_stream(self_, index, stream_id); }

std::string Accelerator::default_comm() const {
  const char* name = api_->default_comm(self_);
  return name ? printable(name) : "";
}

std::string Accelerator::plugin_device() const {
  const char* device = api_->plugin_device(self_);
  return device ? printable(device) : name();
}

}  // namespace gannet
