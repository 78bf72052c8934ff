// LibTorch's own exceptions where they leave a model: what the batch and the model do not agree on is the program's mistake.
//
//   const Measured measured = of_model("update 3, forward of the model", [&] { return measure(batch); });
#pragma once

#include <string>
#include <utility>

namespace gannet {

// Within a handler only. A c10::Error becomes Error(kArgument) with LibTorch's first line and no C++ stack. Memory that ran out,
// errors of the device, gannet::Error and the program's own exceptions are rethrown as they are.
[[noreturn]] void rethrow_from_model(const std::string& where);

// What `call` returns, or its exception as rethrow_from_model has it.
template <class Call>
auto of_model(const std::string& where, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (...) {
    rethrow_from_model(where);
  }
}

}  // namespace gannet
