// Operators that need no parameter's bytes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace gannet::zero {

/// It looks at a tensor's shape or makes a view of it: a gather for it would be in vain.
bool reads_no_bytes(const c10::OperatorHandle& op);

}  // namespace gannet::zero
