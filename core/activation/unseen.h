// Copies that are no operators of the program: nobody records, observes or saves what runs while it lives, on this thread.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "activation/saved_tensors.h"

namespace gannet::activation {

class Unseen {
  const at::NoGradGuard no_grad_;
  const Keeping nothing_{nullptr};
  const c10::impl::ExcludeDispatchKeyGuard no_observer_{
      c10::DispatchKeySet({c10::DispatchKey::TESTING_ONLY_GenericMode, c10::DispatchKey::TESTING_ONLY_GenericWrapper})};
};

}  // namespace gannet::activation
