// An Offload plugin's object: a tier for buffers that are not in use (host memory, NVMe).
#pragma once

#include <cstdint>
#include <string>

#include "interfaces/host.h"
#include "plugin/plugin.h"

namespace gannet {

class Offload {
 public:
  Offload(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host, uint32_t rank);
  ~Offload();
  Offload(const Offload&) = delete;

  const plugin::Plugin& plugin() const { return plugin_; }
  uint64_t alignment_bytes() const;
  void* allocate(uint64_t bytes, const std::string& name);  // returns the handle of a region
  void release(void* region);
  void* address(void* region) const;  // null if the tier is not addressable
  // read and write are asynchronous: `buffer` stays in use until wait(), which also frees the handle.
  void* read(void* region, uint64_t offset, void* buffer, uint64_t bytes);  // returns the handle of a transfer
  void* write(void* region, uint64_t offset, const void* buffer, uint64_t bytes);
  void wait(void* work);

 private:
  const plugin::Plugin& plugin_;
  plugin::ParamSet params_;
  const gannet_offload_api* api_;
  void* self_ = nullptr;
};

}  // namespace gannet
