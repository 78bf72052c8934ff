// Hides copies that Gannet makes itself. While an UnobservedScope lives, operators on this thread
// are not recorded or observed, and save nothing to a keeper.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "activation/saved_tensors.h"

namespace gannet::activation {

class UnobservedScope {
  const at::NoGradGuard no_grad_;
  const KeeperScope nothing_{nullptr};
  const c10::impl::ExcludeDispatchKeyGuard no_observer_{
      c10::DispatchKeySet({c10::DispatchKey::TESTING_ONLY_GenericMode, c10::DispatchKey::TESTING_ONLY_GenericWrapper})};
};

}  // namespace gannet::activation
