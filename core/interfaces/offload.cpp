#include "interfaces/offload.h"

#include "interfaces/call.h"

namespace gannet {

Offload::Offload(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host, uint32_t rank)
    : plugin_(plugin), params_(std::move(params)), api_(interfaces::api_of<gannet_offload_api>(plugin)) {
  interfaces::call(plugin_, {"create"}, api_->create, host.table(), &params_.view(), rank, &self_);
}

Offload::~Offload() { interfaces::marked(plugin_, {"destroy"}, api_->destroy, self_); }

uint64_t Offload::alignment_bytes() const {
  return interfaces::walled(plugin_, {"alignment_bytes"}, api_->alignment_bytes, self_);
}

void* Offload::allocate(uint64_t bytes, const std::string& name) {
  void* region = nullptr;
  interfaces::call(plugin_, {"allocate"}, api_->allocate, self_, bytes, name.c_str(), &region);
  return region;
}

void Offload::release(void* region) { interfaces::marked(plugin_, {"release"}, api_->release, self_, region); }

void* Offload::address(void* region) const { return interfaces::walled(plugin_, {"address"}, api_->address, self_, region); }

void* Offload::read(void* region, uint64_t offset, void* buffer, uint64_t bytes) {
  void* work = nullptr;
  interfaces::call(plugin_, {"read"}, api_->read, self_, region, offset, buffer, bytes, &work);
  return work;
}

void* Offload::write(void* region, uint64_t offset, const void* buffer, uint64_t bytes) {
  void* work = nullptr;
  interfaces::call(plugin_, {"write"}, api_->write, self_, region, offset, buffer, bytes, &work);
  return work;
}

void Offload::wait(void* work) { interfaces::call(plugin_, {"work_wait"}, api_->work_wait, self_, work); }

}  // namespace gannet
