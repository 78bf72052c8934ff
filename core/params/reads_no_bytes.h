// Operators that do not read parameter bytes.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace gannet::zero {

/// True if the operator only reads the shape of its tensor or makes a view of it, so that a gather
/// would be wasted.
bool reads_no_bytes(const c10::OperatorHandle& op);

}  // namespace gannet::zero
