// The GPU of this machine, opened once through its accelerator plugin, or the reason why there is none.
//
//   struct AdamOnGpu : GpuTest {};              each test of it is skipped where there is no GPU
#pragma once

#include <ATen/Context.h>
#include <gannet/error.h>

#include <memory>
#include <string>

#include "device/accelerator.h"
#include "plugin/plugin.h"

namespace gannet::test {

struct Gpu {
  plugin::Registry registry{plugin::Registry::Options{}};
  Host host;
  std::unique_ptr<Accelerator> accelerator;
  std::string refusal;

  // Never destroyed: LibTorch's own device memory outlives main's statics.
  static Gpu& instance() {
    static Gpu& gpu = *new Gpu;
    return gpu;
  }

 private:
  Gpu() {
    at::manual_seed(1);  // as programs do before they make a model: LibTorch looks for CUDA here, and must not stay with "none"
    try {
      const plugin::Plugin& plugin = registry.require(GANNET_KIND_ACCELERATOR, "cuda");
      accelerator = std::make_unique<Accelerator>(
          plugin, plugin::parse_params(plugin, {}, [](const std::string&) { return std::string(); }), host);
      accelerator->set_device(0);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnavailable && error.code() != ErrorCode::kUnsupported) throw;
      refusal = error.message();
    }
  }
};

}  // namespace gannet::test
