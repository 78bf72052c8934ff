#include "activation/boundary.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gannet/log.h>

#include <utility>

#include "base/format.h"

namespace gannet::activation {
namespace {

using Clock = std::chrono::steady_clock;

bool does_anything(const Configuration* configuration) {
  return configuration && (configuration->settings.profile || configuration->settings.synchronize_checkpoint_boundary);
}

}  // namespace

Boundary::Boundary(const Configuration* configuration, const std::vector<c10::Device>& devices, const char* what,
                   std::string region)
    : configuration_(does_anything(configuration) ? configuration : nullptr),
      devices_(devices),
      what_(what),
      region_(configuration_ ? std::move(region) : std::string()) {
  if (!configuration_) return;
  wait();
  began_ = Clock::now();
}

Boundary::~Boundary() try {
  if (!configuration_) return;
  wait();
  if (!configuration_->settings.profile) return;
  const auto ended = Clock::now();
  log_info(formatted("{}: {} {:.3f} ms", region_, what_, std::chrono::duration<double, std::milli>(ended - began_).count()));
  if (configuration_->span) configuration_->span(formatted("{} of {}", what_, region_), began_, ended);
} catch (const std::exception& error) {
  log(LogLevel::kError, error.what());
}

// Without this wait, the time measured on a device would be only that of launching its kernels.
void Boundary::wait() const {
  if (!configuration_->settings.synchronize_checkpoint_boundary) return;
  for (const c10::Device& device : devices_)
    if (!device.is_cpu() && !device.is_meta()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace gannet::activation
