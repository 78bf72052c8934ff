// Error messages about a failed step.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <gannet/error.h>

#include <string>
#include <vector>

#include "program.h"

namespace gannet::exported {

// "train.fp32: operator aten.view.default (node 'view_3', layer 'h.0.attn') failed: <what>; its arguments:
// float32[2, 8, 16], [2, -1]".
Error failed(const Program& program, const Step& step, const std::string& what, const std::vector<c10::IValue>& values);

// "int64[2, 8]"
std::string describe(const at::Tensor& tensor);

// The dtype of an argument of kind kDtype; the compiler has checked its name.
at::ScalarType dtype_of(const Argument& argument);

}  // namespace gannet::exported
